//! Checks the `launch` part of a spec: the parameters of launches at EC2.

use serde_json::{Map, Value};

use super::checks::{Field, is_ec2_id};
use crate::common::failure::Problems;
use runyard_core::model::FieldError;

/// Maximum size of the script: EC2 accepts at most 16 KiB of user data, and the script is a part of it.
const SCRIPT: usize = 12 << 10;
/// Maximum number of tags of a class: EC2 accepts 50 on a resource, and five are ours.
const TAGS: usize = 45;
/// The prefixes of our own tags and of AWS's.
const RESERVED: [&str; 2] = ["runyard:", "aws:"];

const NAMES: &[&str] = &[
    "ami",
    "architecture",
    "instanceProfile",
    "subnetIds",
    "securityGroupIds",
    "volumeGiB",
    "volume",
    "tags",
    "preRunnerScript",
    "maxPriceOver",
    "launchTemplateId",
];

/// Keys that are allowed beside `launchTemplateId`: each launch passes them to EC2, whatever the template contains.
const BESIDE_A_TEMPLATE: [&str; 4] = ["launchTemplateId", "subnetIds", "tags", "maxPriceOver"];

/// Checks the whole part.
pub(crate) fn check(field: &Field<'_>, problems: &mut Problems) {
    let Value::Object(map) = field.value else {
        problems.add(field.refuse("must be an object", format!("its keys are {}", NAMES.join(", "))));
        return;
    };
    for (name, value) in map {
        let inner = Field { path: format!("{}.{name}", field.path), value };
        one(name, &inner, problems);
    }
    if map.contains_key("launchTemplateId")
        && let Some(other) = map.keys().find(|name| !BESIDE_A_TEMPLATE.contains(&name.as_str()))
    {
        let message = format!("stands beside {other}: a template is used instead of it");
        let fix = "leave out launchTemplateId, or all the others but subnetIds, tags and maxPriceOver";
        problems.add(field.refuse(message, fix));
    }
    if map.contains_key("volumeGiB") && map.get("volume").is_some_and(|volume| volume.get("gib").is_some()) {
        let inner = Field { path: format!("{}.volumeGiB", field.path), value: &map["volumeGiB"] };
        problems.add(inner.refuse("stands beside volume.gib, which is the same", "leave volumeGiB out"));
    }
    if let (Some(Value::String(image)), Some(Value::String(architecture))) =
        (map.get("ami"), map.get("architecture"))
        && let Some(other) = named_architecture(image).filter(|named| named != architecture)
    {
        let inner = Field { path: format!("{}.architecture", field.path), value: &map["architecture"] };
        let fix = format!("write architecture: {other}, or name the image of {architecture}");
        problems.add(inner.refuse(format!("is not that of the image {image}"), fix));
    }
}

fn one(name: &str, field: &Field<'_>, problems: &mut Problems) {
    let checked = match name {
        "ami" => field.shaped(
            |v| is_ec2_id(v, "ami-") || is_parameter(v),
            "use an id such as ami-0123456789abcdef0, or a parameter of Systems Manager such as \
             ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
        ),
        "architecture" => field.shaped(|v| matches!(v, "x86_64" | "arm64"), "use x86_64 or arm64"),
        "instanceProfile" => field.shaped(
            |v| (1..=256).contains(&v.len()) && v.bytes().all(|b| b.is_ascii_graphic()),
            "use the profile's name or ARN",
        ),
        "volumeGiB" => field.whole(1, 65_536),
        // EC2 treats 999999 as no limit.
        "maxPriceOver" => field.whole(1, 999_999),
        "volume" => return volume(field, problems),
        "tags" => return tags(field, problems),
        "preRunnerScript" => field.text(SCRIPT).map(|_| ()),
        "launchTemplateId" => field.shaped(|v| is_ec2_id(v, "lt-"), "use an id such as lt-0123456789abcdef0"),
        "subnetIds" => return ids(field, |v| is_ec2_id(v, "subnet-"), "subnet-0123456789abcdef0", problems),
        "securityGroupIds" => return ids(field, |v| is_ec2_id(v, "sg-"), "sg-0123456789abcdef0", problems),
        _ => Err(field.refuse("is an unknown key", format!("use one of {}", NAMES.join(", ")))),
    };
    problems.keep(checked);
}

fn ids(field: &Field<'_>, good: fn(&str) -> bool, example: &str, problems: &mut Problems) {
    let Some(elements) = problems.keep(field.elements()) else { return };
    for element in elements {
        problems.keep(element.shaped(good, format!("use ids such as {example}")));
    }
}

/// Returns whether this is the full name of a Systems Manager parameter, optionally with a version number or a label
/// after a colon (EC2 user guide, "Reference AMIs using Systems Manager parameters").
fn is_parameter(text: &str) -> bool {
    let Some(name) = text.strip_prefix("ssm:") else { return false };
    let (name, version) = name.split_once(':').unwrap_or((name, "1"));
    let plain = |text: &str, more: &[u8]| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
    };
    let named = name.len() <= 1011 && name.starts_with('/') && !name.ends_with('/') && plain(name, b"/_.-");
    named && !name.contains("//") && version.len() <= 100 && plain(version, b"_.-")
}

/// Returns the architecture that the parts of a public parameter's name indicate.
fn named_architecture(image: &str) -> Option<&'static str> {
    let name = image.strip_prefix("ssm:/aws/service/")?;
    let ends = |word: &str| name.split('/').any(|part| part == word || part.ends_with(&format!("-{word}")));
    match (ends("arm64") || ends("aarch64"), ends("x86_64") || ends("amd64")) {
        (true, false) => Some("arm64"),
        (false, true) => Some("x86_64"),
        (true, true) | (false, false) => None,
    }
}

/// Checks a volume against EC2's limits for gp3 (EBS user guide, "General Purpose SSD volumes"): at most 500 operations
/// per second for each GiB, and 0.25 MiB/s for each operation per second.
fn volume(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are gib, iops, throughput, initializationRate, encrypted and kmsKeyId";
    let Some(entries) = field.entries(problems, fix) else { return };
    for (name, inner) in entries {
        let checked = match name {
            "gib" => inner.whole(1, 65_536),
            "iops" => inner.whole(3_000, 80_000),
            "throughput" => inner.whole(125, 2_000),
            "initializationRate" => inner.whole(100, 300),
            "encrypted" => inner.flag(),
            "kmsKeyId" => inner.shaped(is_key, "use the key's id, its alias (alias/NAME) or its ARN"),
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
    let number = |name: &str| field.value.get(name).and_then(Value::as_u64);
    let mut refuse = |name: &str, message: String, fix: &str| {
        problems.add(field.inner(name, &field.value[name]).refuse(message, fix));
    };
    if let (Some(gib), Some(iops)) = (number("gib"), number("iops"))
        && iops > 3_000.max(gib.saturating_mul(500))
    {
        refuse("iops", format!("is more than 500 for each of {gib} GiB"), "lower it, or raise gib");
    }
    let iops = number("iops").unwrap_or(3_000);
    if number("throughput").is_some_and(|throughput| throughput.saturating_mul(4) > iops) {
        let message = format!("is more than a quarter of {iops} operations a second");
        refuse("throughput", message, "lower it, or raise iops");
    }
    if field.value.get("kmsKeyId").is_some() && field.value.get("encrypted") != Some(&Value::Bool(true)) {
        refuse("kmsKeyId", "stands without encrypted: true".into(), "add encrypted: true");
    }
}

fn is_key(text: &str) -> bool {
    (1..=2048).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_/:".contains(&b))
}

/// Checks tags by the rules of EC2 (user guide, "Tag restrictions"), with the characters that all services accept.
fn tags(field: &Field<'_>, problems: &mut Problems) {
    let Some(entries) = field.entries(problems, "write it as {CostCenter: \"4711\"}") else { return };
    if entries.len() > TAGS {
        let message = format!("are {} tags; EC2 takes 50 on a resource, five of them ours", entries.len());
        problems.add(field.refuse(message, format!("keep at most {TAGS}")));
    }
    for (key, inner) in entries {
        problems.keep(tag(key, &inner));
    }
}

fn tag(key: &str, field: &Field<'_>) -> Result<(), FieldError> {
    let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || " _.:/=+-@".contains(c));
    let small = key.to_lowercase();
    if let Some(prefix) = RESERVED.into_iter().find(|prefix| small.starts_with(prefix)) {
        let whose = if prefix == "aws:" { "AWS" } else { "Runyard" };
        let message = format!("has a key that begins with {prefix}, which only {whose} may use");
        return Err(field.refuse(message, format!("use a key without {prefix}")));
    }
    if !(1..=128).contains(&key.chars().count()) || !plain(key) {
        let fix = "use 1 to 128 letters, digits, spaces and _ . : / = + - @";
        return Err(field.refuse("has a key of the wrong form", fix));
    }
    let text = field.text(1024)?;
    if text.chars().count() > 256 || !plain(text) {
        let fix = "use at most 256 letters, digits, spaces and _ . : / = + - @";
        return Err(field.refuse("has the wrong form", fix));
    }
    Ok(())
}

/// Refuses types of another architecture than the class's, as EC2 would find no matching type.
pub(crate) fn types(path: &str, spec: &Map<String, Value>, problems: &mut Problems) {
    let launch = spec.get("launch");
    let Some(architecture) = launch.and_then(|launch| launch.get("architecture")).and_then(Value::as_str)
    else {
        return;
    };
    let globs = spec.get("allowedInstanceTypes").and_then(Value::as_array).into_iter().flatten();
    for (i, value) in globs.enumerate() {
        let field = Field { path: format!("{path}.allowedInstanceTypes[{i}]"), value };
        let other = value.as_str().and_then(architecture_of).filter(|of| *of != architecture);
        if let Some(other) = other {
            let message = format!("names types of {other}, and launch.architecture is {architecture}");
            problems.add(field.refuse(message, "name types of that architecture, or a class of its own"));
        }
    }
}

/// Returns the architecture of the types that a glob matches, if its family indicates it: AWS's own processors have a
/// `g` after the generation (`m7g`, `c7gn`, `im4gn`), or are `a1` (EC2, "Instance type naming conventions").
fn architecture_of(glob: &str) -> Option<&'static str> {
    let family =
        glob.split('.').next().filter(|family| !family.contains('*') && !family.starts_with("mac"))?;
    let options = family.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '-');
    let options = options.trim_start_matches(|c: char| c.is_ascii_digit());
    let generation = family.bytes().any(|b| b.is_ascii_digit());
    match generation {
        true if family == "a1" || options.starts_with('g') => Some("arm64"),
        true => Some("x86_64"),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(launch: Value) -> Vec<String> {
        let mut problems = Problems::default();
        check(&Field { path: "launch".into(), value: &launch }, &mut problems);
        let found = problems.check().err().map(|failure| failure.problems).unwrap_or_default();
        found.into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn an_image_may_be_named_by_a_parameter_of_systems_manager() {
        for good in [
            "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64",
            "ssm:/golden/runner:7",
            "ssm:/golden/runner:blue-1",
        ] {
            assert_eq!(problems(json!({"ami": good})), [""; 0], "{good}");
        }
        for bad in
            ["ssm:", "ssm:/", "ssm:golden", "ssm://a", "ssm:/a b", "ssm:/a:", "resolve:ssm:/a", "SSM:/a"]
        {
            assert_eq!(problems(json!({"ami": bad})), ["launch.ami"], "{bad}");
        }
    }

    #[test]
    fn an_image_of_another_architecture_is_refused_where_its_name_tells() {
        let ubuntu = "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id";
        let amazon = "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64";
        for (image, architecture, good) in [
            (ubuntu, "x86_64", true),
            (ubuntu, "arm64", false),
            (amazon, "arm64", true),
            (amazon, "x86_64", false),
            ("ssm:/golden/arm64", "x86_64", true),
            ("ami-0123456789abcdef0", "arm64", true),
        ] {
            let found = problems(json!({"ami": image, "architecture": architecture}));
            assert_eq!(found.is_empty(), good, "{image} {architecture}");
            assert!(good || found == ["launch.architecture"], "{found:?}");
        }
    }

    #[test]
    fn a_volume_keeps_to_what_ec2_gives_one_of_type_gp3() {
        for good in [
            json!({}),
            json!({"gib": 60, "iops": 16000, "throughput": 1000, "encrypted": true, "kmsKeyId": "alias/yard"}),
            json!({"gib": 1, "iops": 3000, "throughput": 750}),
            json!({"iops": 80000, "throughput": 2000}),
            json!({"initializationRate": 100}),
            json!({"gib": 60, "initializationRate": 300}),
            json!({"encrypted": true}),
        ] {
            assert_eq!(problems(json!({"volume": good})), [""; 0], "{good}");
        }
        for (bad, key) in [
            (json!({"gib": 0}), "gib"),
            (json!({"gib": 65537}), "gib"),
            (json!({"iops": 2999}), "iops"),
            (json!({"iops": 80001}), "iops"),
            (json!({"gib": 10, "iops": 5001}), "iops"),
            (json!({"throughput": 124}), "throughput"),
            (json!({"throughput": 751}), "throughput"),
            (json!({"iops": 4000, "throughput": 1001}), "throughput"),
            (json!({"initializationRate": 99}), "initializationRate"),
            (json!({"initializationRate": 301}), "initializationRate"),
            (json!({"initializationRate": "fast"}), "initializationRate"),
            (json!({"encrypted": "yes"}), "encrypted"),
            (json!({"encrypted": true, "kmsKeyId": "a b"}), "kmsKeyId"),
            (json!({"kmsKeyId": "alias/yard"}), "kmsKeyId"),
            (json!({"encrypted": false, "kmsKeyId": "alias/yard"}), "kmsKeyId"),
            (json!({"type": "io2"}), "type"),
        ] {
            assert_eq!(problems(json!({"volume": bad})), [format!("launch.volume.{key}")], "{bad}");
        }
        assert_eq!(problems(json!({"volume": 60})), ["launch.volume"]);
        assert_eq!(problems(json!({"volumeGiB": 60, "volume": {"gib": 60}})), ["launch.volumeGiB"]);
        assert_eq!(problems(json!({"volumeGiB": 60, "volume": {"iops": 6000}})), [""; 0]);
    }

    #[test]
    fn tags_keep_to_the_rules_of_ec2_and_leave_ours_alone() {
        let many = |count: usize| (0..count).map(|i| (format!("k{i}"), json!("v"))).collect::<Map<_, _>>();
        for good in [
            json!({"CostCenter": "4711", "team": "", "Ownér": "a b_c.d:e/f=g+h-i@j", "Name": "mine"}),
            Value::Object(many(45)),
        ] {
            assert_eq!(problems(json!({"tags": good})), [""; 0], "{good}");
        }
        let long = "k".repeat(129);
        for (key, value) in [
            ("aws:cost", json!("1")),
            ("AWS:cost", json!("1")),
            ("runyard:table", json!("yard")),
            ("Runyard:x", json!("yard")),
            ("", json!("v")),
            (long.as_str(), json!("v")),
            ("a*b", json!("v")),
            ("cost", json!("v".repeat(257))),
            ("cost", json!("a;b")),
            ("cost", json!(4711)),
        ] {
            assert_eq!(problems(json!({"tags": {key: value}})), [format!("launch.tags.{key}")], "{value}");
        }
        assert_eq!(problems(json!({"tags": many(46)})), ["launch.tags"]);
        assert_eq!(problems(json!({"tags": ["a"]})), ["launch.tags"]);
    }

    #[test]
    fn beside_a_template_stand_subnets_and_tags_and_nothing_else() {
        let with = |key: &str, value: Value| {
            problems(json!({"launchTemplateId": "lt-0123456789abcdef0", key: value}))
        };
        assert_eq!(with("subnetIds", json!(["subnet-0123456789abcdef0"])), [""; 0]);
        assert_eq!(with("tags", json!({"team": "web"})), [""; 0]);
        assert_eq!(with("volume", json!({"gib": 9})), ["launch"]);
        assert_eq!(with("ami", json!("ami-0123456789abcdef0")), ["launch"]);
    }

    #[test]
    fn types_of_another_architecture_are_refused_by_name() {
        for (glob, architecture) in [
            ("m7i.*", Some("x86_64")),
            ("m7a.large", Some("x86_64")),
            ("g5.xlarge", Some("x86_64")),
            ("mac2-m2.metal", None),
            ("u-6tb1.metal", Some("x86_64")),
            ("m7g.*", Some("arm64")),
            ("c7gn.large", Some("arm64")),
            ("im4gn.large", Some("arm64")),
            ("x2gd.large", Some("arm64")),
            ("g5g.xlarge", Some("arm64")),
            ("a1.large", Some("arm64")),
            ("m*", None),
            ("*.large", None),
        ] {
            assert_eq!(architecture_of(glob), architecture, "{glob}");
            for asked in ["x86_64", "arm64"] {
                let spec = json!({"allowedInstanceTypes": [glob], "launch": {"architecture": asked}});
                let mut problems = Problems::default();
                types("pools[0]", spec.as_object().unwrap(), &mut problems);
                let refused = problems.check().is_err();
                assert_eq!(refused, architecture.is_some_and(|is| is != asked), "{glob} {asked}");
            }
        }
    }
}

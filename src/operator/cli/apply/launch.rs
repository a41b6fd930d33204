//! Checks the `launch` part of a spec: what EC2 may be asked to launch with.

use serde_json::Value;

use super::checks::{Field, is_ec2_id};
use crate::cli::failure::Problems;

/// EC2 takes at most 16 KiB of user data, of which the script is a part.
const SCRIPT: usize = 12 << 10;

const NAMES: &[&str] = &[
    "ami",
    "architecture",
    "instanceProfile",
    "subnetIds",
    "securityGroupIds",
    "volumeGiB",
    "preRunnerScript",
    "launchTemplateId",
];

/// Checks the whole part.
pub(super) fn check(field: &Field<'_>, problems: &mut Problems) {
    let Value::Object(map) = field.value else {
        problems.add(field.refuse("must be an object", format!("its keys are {}", NAMES.join(", "))));
        return;
    };
    for (name, value) in map {
        let inner = Field { path: format!("{}.{name}", field.path), value };
        one(name, &inner, problems);
    }
    if map.contains_key("launchTemplateId")
        && let Some(other) = map.keys().find(|name| *name != "launchTemplateId")
    {
        let message = format!("stands beside {other}: a template is used instead of everything else");
        problems.add(field.refuse(message, "leave out launchTemplateId or all the others"));
    }
}

fn one(name: &str, field: &Field<'_>, problems: &mut Problems) {
    let checked = match name {
        "ami" => field.shaped(|v| is_ec2_id(v, "ami-"), "use an id such as ami-0123456789abcdef0"),
        "architecture" => field.shaped(|v| matches!(v, "x86_64" | "arm64"), "use x86_64 or arm64"),
        "instanceProfile" => field.shaped(
            |v| (1..=256).contains(&v.len()) && v.bytes().all(|b| b.is_ascii_graphic()),
            "use the profile's name or ARN",
        ),
        "volumeGiB" => field.whole(1, 65_536),
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

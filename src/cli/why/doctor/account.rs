//! Checks of IAM and Service Quotas before a first launch: EC2's service-linked roles, and the number of vCPUs that may
//! run. Runyard calls neither service itself; it runs the program `aws` with the user's credentials.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use runyard_core::model::{PoolSpec, UsageClass};
use runyard_operator::preflight::Check;

/// Timeout of one call.
const PATIENCE: Duration = Duration::from_secs(15);

/// The families that share EC2's quotas of standard instances (EC2 user guide, "On-Demand Instance quotas").
const STANDARD: &str = "acdhimrtz";

/// The result of a call of `aws`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// The requested value.
    Value(String),
    /// The last line of the error.
    Refused(String),
    /// The program could not be run.
    Nobody(String),
}

/// A service-linked role, which EC2 creates once for each account.
struct Role {
    name: &'static str,
    service: &'static str,
}

const FLEET: Role = Role { name: "AWSServiceRoleForEC2Fleet", service: "ec2fleet.amazonaws.com" };
const SPOT: Role = Role { name: "AWSServiceRoleForEC2Spot", service: "spot.amazonaws.com" };

/// Checks the roles and quotas for the machines of a class.
pub(super) async fn checks(spec: &PoolSpec) -> Vec<Check> {
    let (roles, code): (&[Role], _) = match spec.usage_class {
        UsageClass::OnDemand => (&[FLEET], "L-1216C47A"),
        UsageClass::Spot => (&[FLEET, SPOT], "L-34B43A08"),
    };
    let mut checks = Vec::new();
    for role in roles {
        let asked = ["iam", "get-role", "--role-name", role.name, "--query", "Role.Arn"];
        checks.push(of_role(role, &ask(&asked).await));
    }
    if standard(&spec.allowed_instance_types.0) {
        let asked = ["service-quotas", "get-service-quota", "--service-code", "ec2", "--quota-code", code];
        let asked = [&asked[..], &["--query", "Quota.Value"]].concat();
        checks.push(of_quota(spec, code, &ask(&asked).await));
    } else {
        let fix = "look at the vCPU quotas of EC2 in the console of Service Quotas";
        checks.push(Check::unchecked("quotas", "the class allows other than standard instances", fix));
    }
    checks
}

/// Returns whether all machines of these types count against the quota of standard instances.
fn standard(globs: &[String]) -> bool {
    let counts = |glob: &String| {
        let mut letters = glob.chars();
        let family = letters.next().is_some_and(|family| STANDARD.contains(family));
        family && letters.next().is_some_and(|generation| generation.is_ascii_digit() || generation == '*')
    };
    // A class that names no types chooses among all of them by size.
    globs.iter().all(counts)
}

async fn ask(asked: &[&str]) -> Answer {
    let mut command = Command::new("aws");
    command.args(asked).args(["--output", "text"]).stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Answer::Nobody(format!("the program aws cannot be run: {error}")),
        Err(_) => {
            return Answer::Nobody(format!("the program aws took longer than {} s", PATIENCE.as_secs()));
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Answer::Value(text(&output.stdout));
    }
    let why = text(&output.stderr);
    Answer::Refused(why.lines().last().unwrap_or("no reason was given").to_owned())
}

fn of_role(role: &Role, answer: &Answer) -> Check {
    let what = format!("EC2's own role {}", role.name);
    let fix = format!("`aws iam create-service-linked-role --aws-service-name {}`", role.service);
    match answer {
        Answer::Value(arn) => Check::good(what, arn),
        Answer::Refused(why) if why.contains("NoSuchEntity") => {
            Check::wrong(what, "the account does not have it, and launches would be refused", fix)
        }
        Answer::Refused(why) | Answer::Nobody(why) => {
            let fix = format!("`aws iam get-role --role-name {}` must answer; else {fix}", role.name);
            Check::unchecked(what, why, fix)
        }
    }
}

fn of_quota(spec: &PoolSpec, code: &str, answer: &Answer) -> Check {
    let what = "quotas";
    let wanted = u64::from(spec.cpu.max(1)) * u64::from(spec.max);
    let machines = format!("the {} machines of `max` need {wanted} vCPUs or more", spec.max);
    let raise = "`aws service-quotas request-service-quota-increase --service-code ec2 --quota-code";
    match answer {
        Answer::Value(value) => match value.parse::<f64>() {
            // A quota is a whole number below 2^53.
            #[allow(clippy::cast_precision_loss, reason = "u32 times u32 that matters is far below 2^53")]
            Ok(quota) if quota < wanted as f64 => Check::wrong(
                what,
                format!("the account may run {quota} vCPUs ({code}), and {machines}"),
                format!("{raise} {code} --desired-value {wanted}`, or lower `max`"),
            ),
            Ok(quota) => Check::good(what, format!("{quota} vCPUs ({code}); {machines}")),
            Err(_) => Check::unchecked(what, format!("Service Quotas said {value:?}"), "run this again"),
        },
        Answer::Refused(why) | Answer::Nobody(why) => {
            let fix =
                format!("`aws service-quotas get-service-quota --service-code ec2 --quota-code {code}`");
            Check::unchecked(what, format!("{why}; {machines}"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_operator::preflight::Outcome;

    fn spec(cpu: u32, max: u32) -> PoolSpec {
        serde_json::from_value(serde_json::json!({"resourceClass": "small", "cpu": cpu, "max": max})).unwrap()
    }

    fn state(check: &Check) -> &'static str {
        match check.outcome {
            Outcome::Good(_) => "good",
            Outcome::Wrong { .. } => "wrong",
            Outcome::Unchecked { .. } => "unchecked",
        }
    }

    #[test]
    fn a_role_that_ec2_lacks_is_wrong_and_one_that_nobody_may_look_at_is_unchecked() {
        let said = |answer: Answer| of_role(&SPOT, &answer);
        assert_eq!(state(&said(Answer::Value("arn:aws:iam::1:role/spot".into()))), "good");
        let missing = said(Answer::Refused(
            "An error occurred (NoSuchEntity) when calling the GetRole operation: it cannot be found.".into(),
        ));
        let Outcome::Wrong { fix, .. } = &missing.outcome else { panic!("{missing:?}") };
        assert_eq!(fix, "`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`");
        let denied = Answer::Refused("An error occurred (AccessDenied) when calling GetRole".into());
        assert_eq!(state(&said(denied)), "unchecked");
        assert_eq!(state(&said(Answer::Nobody("the program aws cannot be run".into()))), "unchecked");
    }

    #[test]
    fn a_quota_below_the_vcpus_of_max_machines_is_wrong() {
        let said = |value: &str| of_quota(&spec(4, 40), "L-1216C47A", &Answer::Value(value.into()));
        assert_eq!(state(&said("160.0")), "good");
        let low = said("5.0");
        let Outcome::Wrong { problem, fix } = &low.outcome else { panic!("{low:?}") };
        assert!(problem.contains("5 vCPUs") && problem.contains("160 vCPUs"), "{problem}");
        assert!(fix.contains("--desired-value 160"), "{fix}");
        assert_eq!(state(&said("None")), "unchecked");
    }

    #[test]
    fn only_standard_families_are_held_against_the_standard_quota() {
        let all = |globs: &[&str]| standard(&globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>());
        assert!(all(&[]) && all(&["m7i.*", "t3.large", "c*"]));
        for other in ["g5.*", "p4d.24xlarge", "inf2.*", "mac2.metal", "*"] {
            assert!(!all(&["m7i.*", other]), "{other}");
        }
    }
}

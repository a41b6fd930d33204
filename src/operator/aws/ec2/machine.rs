//! Converts EC2's description of an instance to the types of the compute port.

use aws_sdk_ec2::types::{Filter, Instance, InstanceLifecycleType, InstanceStateName, Reservation, Tag};
use jiff::Timestamp;

use super::errors::never_began;
use crate::model::{ClassName, InstanceArn, InstanceId, LaunchId, UsageClass};
use crate::ports::{Machine, MachineState, StateReason};

/// The tag with the table of a resource's yard; nothing else makes it ours.
pub(super) const TABLE: &str = "runyard:table";
/// The tag with its class.
pub(super) const CLASS: &str = "runyard:class";
/// The tag with the launch that created it.
pub(super) const LAUNCH: &str = "runyard:launch";
/// The tag with the attempt of that launch.
pub(super) const ATTEMPT: &str = "runyard:attempt";

/// Creates a tag.
pub(super) fn tag(key: &str, value: impl Into<String>) -> Tag {
    Tag::builder().key(key).value(value).build()
}

/// Returns the value of a tag.
pub(super) fn tagged<'a>(tags: Option<&'a Vec<Tag>>, key: &str) -> Option<&'a str> {
    tags?.iter().find(|tag| tag.key() == Some(key))?.value()
}

/// Returns the partition of a region (botocore's `partitions.json`).
pub(super) fn partition(region: &str) -> &'static str {
    let prefixes = [
        ("cn-", "aws-cn"),
        ("us-gov-", "aws-us-gov"),
        ("us-iso-", "aws-iso"),
        ("us-isob-", "aws-iso-b"),
        ("eu-isoe-", "aws-iso-e"),
        ("us-isof-", "aws-iso-f"),
        ("eusc-", "aws-eusc"),
    ];
    prefixes.iter().find(|(prefix, _)| region.starts_with(prefix)).map_or("aws", |(_, partition)| partition)
}

/// Returns the ARN of an instance, in the form of `ec2:SourceInstanceARN`; `None` if a part of it is invalid.
pub(super) fn arn(region: &str, owner: &str, id: &InstanceId) -> Option<InstanceArn> {
    InstanceArn::parse(&format!("arn:{}:ec2:{region}:{owner}:instance/{id}", partition(region))).ok()
}

/// Selects instances. They are requested with filters, and responses are checked again: an engine without support for a
/// filter could return instances of others, which would end as our orphans.
#[derive(Clone, Debug)]
pub(super) enum Which {
    /// Instances with all these tags.
    Tagged(Vec<(&'static str, String)>),
    /// Instances with these ids.
    Ids(Vec<String>),
}

impl Which {
    pub(super) fn filters(&self) -> Vec<Filter> {
        match self {
            Self::Tagged(tags) => {
                let by_tag = |(key, value): &(&str, String)| {
                    Filter::builder().name(format!("tag:{key}")).values(value).build()
                };
                tags.iter().map(by_tag).collect()
            }
            Self::Ids(ids) => {
                vec![Filter::builder().name("instance-id").set_values(Some(ids.clone())).build()]
            }
        }
    }

    fn means(&self, instance: &Instance) -> bool {
        match self {
            Self::Tagged(tags) => {
                tags.iter().all(|(key, value)| tagged(instance.tags.as_ref(), key) == Some(value.as_str()))
            }
            Self::Ids(ids) => ids.iter().any(|id| Some(id.as_str()) == instance.instance_id()),
        }
    }
}

/// Returns the selected machines of a page.
pub(super) fn machines(region: &str, which: &Which, reservations: Vec<Reservation>) -> Vec<Machine> {
    let of = |reservation: Reservation| {
        let owner = reservation.owner_id.unwrap_or_default();
        let instances = reservation.instances.unwrap_or_default().into_iter();
        let meant = instances.filter(|instance| which.means(instance));
        meant.filter_map(move |instance| machine(region, &owner, &instance))
    };
    reservations.into_iter().flat_map(of).collect()
}

fn machine(region: &str, owner: &str, instance: &Instance) -> Option<Machine> {
    let id = InstanceId::parse(instance.instance_id()?).ok()?;
    let tags = instance.tags.as_ref();
    let said = |key| tagged(tags, key);
    Some(Machine {
        arn: arn(region, owner, &id)?,
        class: said(CLASS).and_then(|class| ClassName::parse(class).ok()),
        launch: said(LAUNCH).and_then(|launch| LaunchId::parse(launch).ok()),
        attempt: said(ATTEMPT).and_then(|attempt| attempt.parse().ok()).unwrap_or_default(),
        instance_type: instance.instance_type().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        usage_class: match instance.instance_lifecycle() {
            Some(InstanceLifecycleType::Spot) => UsageClass::Spot,
            _ => UsageClass::OnDemand,
        },
        cpu: 0,
        mmem: 0,
        zone: instance.placement().and_then(|at| at.availability_zone()).unwrap_or_default().to_owned(),
        state: state(instance),
        launched_at: launched_at(instance),
        id,
    })
}

/// Returns the end reason of an instance, if it ended and EC2 reports one.
pub(super) fn state_reason(instance: &Instance) -> Option<(InstanceId, StateReason)> {
    if state(instance).alive() {
        return None;
    }
    let told = instance.state_reason();
    let code = told.and_then(|reason| reason.code()).unwrap_or_default();
    let message = told.and_then(|reason| reason.message()).filter(|message| !message.is_empty());
    let why = message.or(instance.state_transition_reason()).filter(|why| !why.is_empty())?;
    let reason = StateReason { why: why.to_owned(), never_began: never_began(code) };
    Some((InstanceId::parse(instance.instance_id()?).ok()?, reason))
}

/// Returns the state of an instance. A state that EC2 may add later is no reason to give a machine up.
pub(super) fn state(instance: &Instance) -> MachineState {
    match instance.state().and_then(|state| state.name()) {
        Some(InstanceStateName::Running) => MachineState::Running,
        Some(InstanceStateName::Stopping | InstanceStateName::Stopped) => MachineState::Stopped,
        Some(InstanceStateName::ShuttingDown) => MachineState::ShuttingDown,
        Some(InstanceStateName::Terminated) => MachineState::Terminated,
        _ => MachineState::Pending,
    }
}

fn launched_at(instance: &Instance) -> Timestamp {
    let told = instance.launch_time().and_then(|time| time.to_millis().ok());
    told.and_then(|millis| Timestamp::from_millisecond(millis).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::InstanceState;

    use super::*;

    #[test]
    fn an_arn_is_what_iam_calls_the_machine() {
        let id = InstanceId::parse("i-0123456789abcdef0").unwrap();
        for (region, wanted) in [
            ("eu-central-1", "arn:aws:ec2:eu-central-1:111122223333:instance/i-0123456789abcdef0"),
            ("cn-north-1", "arn:aws-cn:ec2:cn-north-1:111122223333:instance/i-0123456789abcdef0"),
            ("us-gov-west-1", "arn:aws-us-gov:ec2:us-gov-west-1:111122223333:instance/i-0123456789abcdef0"),
        ] {
            assert_eq!(arn(region, "111122223333", &id).unwrap().as_str(), wanted);
        }
    }

    #[test]
    fn stopping_and_stopped_are_the_same_loss_and_a_new_state_is_none() {
        for (told, wanted) in [
            ("pending", MachineState::Pending),
            ("running", MachineState::Running),
            ("stopping", MachineState::Stopped),
            ("stopped", MachineState::Stopped),
            ("shutting-down", MachineState::ShuttingDown),
            ("terminated", MachineState::Terminated),
            ("hovering", MachineState::Pending),
        ] {
            let name = InstanceStateName::from(told);
            let instance = Instance::builder().state(InstanceState::builder().name(name).build()).build();
            assert_eq!(state(&instance), wanted, "{told}");
        }
    }

    #[test]
    fn a_machine_with_unreadable_tags_is_still_one() {
        let instance = Instance::builder().instance_id("i-1").tags(tag(CLASS, "Not A Class")).build();
        let found = machines("eu-central-1", &Which::Ids(vec!["i-1".into()]), vec![told(&[instance])]);
        assert_eq!((found.len(), &found[0].class, &found[0].launch), (1, &None, &None));
    }

    fn told(instances: &[Instance]) -> Reservation {
        Reservation::builder().owner_id("1").set_instances(Some(instances.to_vec())).build()
    }

    #[test]
    fn what_is_told_without_being_meant_is_left_alone() {
        let ours = Instance::builder().instance_id("i-1").tags(tag(TABLE, "yard")).build();
        let theirs = Instance::builder().instance_id("i-2").tags(tag(TABLE, "other")).build();
        let nobodys = Instance::builder().instance_id("i-3").build();
        let reservation = told(&[ours, theirs, nobodys]);
        for which in [Which::Tagged(vec![(TABLE, "yard".into())]), Which::Ids(vec!["i-1".into()])] {
            let found = machines("eu-central-1", &which, vec![reservation.clone()]);
            let ids: Vec<_> = found.iter().map(|machine| machine.id.as_str()).collect();
            assert_eq!(ids, ["i-1"], "{which:?}");
        }
    }
}

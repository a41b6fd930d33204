//! The machines of a class by what they cost and what they are used for.

use std::collections::BTreeMap;

use crate::model::{Instance, Life, Place, UsageClass};

/// Machines of a class that cost the same and are at the same place of their life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachineKind {
    /// Their place.
    pub place: Place,
    /// How they are paid for.
    pub usage_class: UsageClass,
    /// Their EC2 type.
    pub instance_type: String,
    /// Their availability zone.
    pub zone: String,
}

/// How many machines there are of each kind; those that are gone are not counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds(BTreeMap<MachineKind, u32>);

impl Kinds {
    pub(crate) fn change(&mut self, instance: &Instance, add: bool) {
        if let Life::Terminated { gone_at: Some(_), .. } = instance.life {
            return;
        }
        let kind = MachineKind {
            place: instance.place(),
            usage_class: instance.facts.usage_class,
            instance_type: instance.facts.instance_type.clone(),
            zone: instance.facts.availability_zone.clone(),
        };
        if add {
            *self.0.entry(kind).or_default() += 1;
        } else if let Some(count) = self.0.get_mut(&kind) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&kind);
            }
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&MachineKind, u32)> {
        self.0.iter().map(|(kind, count)| (kind, *count))
    }
}

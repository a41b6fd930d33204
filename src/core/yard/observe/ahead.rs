//! GitHub's responses for the labels of claims whose runners were registered ahead.

use std::collections::BTreeSet;

use super::super::{Now, Unit, Yard};
use crate::model::InstanceArn;

impl Yard {
    /// Records that GitHub did not give the runner of a machine the label of its claim, with its error message where it
    /// refused.
    pub(super) fn label_failed(
        &mut self,
        arn: &InstanceArn,
        refused: Option<String>,
        now: &Now,
        dirty: &mut BTreeSet<Unit>,
    ) {
        let certain = refused.is_some();
        let class = self.instances.get(arn).map(|of| of.instance.facts.resource_class.clone());
        if let (Some(words), Some(name)) = (refused, class) {
            self.refused_labels.entry(name.clone()).or_default().refused(words, now.mono);
            dirty.insert(Unit::Class(name));
        }
        self.of(arn, dirty, |tracked| tracked.label_failed(certain));
    }

    /// Records that GitHub gave the runner of a machine the label of its claim.
    pub(super) fn label_given(&mut self, arn: &InstanceArn) {
        let class = self.instances.get(arn).map(|of| &of.instance.facts.resource_class);
        class.and_then(|name| self.refused_labels.remove(name));
    }
}

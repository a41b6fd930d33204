//! Translates a write to DynamoDB's expressions. Every guard has its condition here and nowhere else. Names of
//! attributes are always placeholders, because many of ours are reserved words (`state`, `count`, `token`).

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue as Sdk;

use crate::model::{AttributeValue, Guard, Item, Operation};

/// The expressions of one write with their placeholders.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Expressions {
    /// The condition; never empty.
    pub(super) condition: String,
    /// The update; `None` for a removal, a check, or an update that changes nothing.
    pub(super) update: Option<String>,
    names: Vec<String>,
    values: Vec<AttributeValue>,
}

impl Expressions {
    /// Renders a write and its condition.
    pub(super) fn of(operation: &Operation) -> Self {
        let mut rendered = Self::default();
        match operation {
            Operation::Create(item) => {
                rendered.condition = rendered.guard(&Guard::Absent);
                rendered.change(item, [].into_iter(), &BTreeMap::new());
            }
            Operation::Update { guard, set, remove, add } => {
                rendered.condition = rendered.guard(guard);
                rendered.change(set, remove.iter(), add);
            }
            Operation::Delete(guard) | Operation::Check(guard) => {
                rendered.condition = rendered.guard(guard);
            }
        }
        rendered
    }

    /// Returns the condition of a guard.
    fn guard(&mut self, guard: &Guard) -> String {
        match guard {
            Guard::Absent => format!("attribute_not_exists({})", self.name("pk")),
            Guard::Version(version) => self.equal("version", number(version)),
            Guard::Image(uid, version) => {
                let same = self.equal("uid", AttributeValue::S(uid.to_string()));
                format!("{same} AND {}", self.equal("version", number(version)))
            }
            Guard::Exists => format!("attribute_exists({})", self.name("pk")),
            Guard::Beat(seq) => self.equal("heartbeatSeq", number(seq)),
            Guard::Lease(token) => self.equal("token", number(token)),
            Guard::StillProvisioned => self.equal("desired", AttributeValue::S("provisioned".into())),
            // Every write has a condition; this one always holds.
            Guard::Anything => {
                let pk = self.name("pk");
                format!("attribute_not_exists({pk}) OR attribute_exists({pk})")
            }
            Guard::ExpiresAt(seconds) => self.equal("expiresAt", number(seconds)),
        }
    }

    fn change<'a>(
        &mut self,
        set: &Item,
        remove: impl Iterator<Item = &'a String>,
        add: &BTreeMap<String, i64>,
    ) {
        let set: Vec<_> = set
            .iter()
            .filter(|(name, _)| !is_key(name))
            .map(|(name, value)| self.assign(name, value))
            .collect();
        let remove: Vec<_> = remove.filter(|name| !is_key(name)).map(|name| self.name(name)).collect();
        // ADD treats a missing number as 0.
        let add: Vec<_> =
            add.iter().map(|(name, by)| format!("{} {}", self.name(name), self.value(number(by)))).collect();
        let clauses: Vec<_> = [("SET", set), ("REMOVE", remove), ("ADD", add)]
            .into_iter()
            .filter(|(_, terms)| !terms.is_empty())
            .map(|(verb, terms)| format!("{verb} {}", terms.join(", ")))
            .collect();
        self.update = (!clauses.is_empty()).then(|| clauses.join(" "));
    }

    fn assign(&mut self, name: &str, value: &AttributeValue) -> String {
        format!("{} = {}", self.name(name), self.value(value.clone()))
    }

    fn equal(&mut self, name: &str, value: AttributeValue) -> String {
        format!("{} = {}", self.name(name), self.value(value))
    }

    /// Returns the placeholder of an attribute's name; there is one per name, however often it is used.
    fn name(&mut self, name: &str) -> String {
        let at = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        format!("#n{at}")
    }

    fn value(&mut self, value: AttributeValue) -> String {
        self.values.push(value);
        format!(":v{}", self.values.len() - 1)
    }

    /// Returns the placeholders of names; `None` instead of an empty map, which DynamoDB refuses.
    pub(super) fn names<M: FromIterator<(String, String)>>(&self) -> Option<M> {
        let names = self.names.iter().enumerate().map(|(at, name)| (format!("#n{at}"), name.clone()));
        (!self.names.is_empty()).then(|| names.collect())
    }

    /// Returns the placeholders of values; `None` instead of an empty map, which DynamoDB refuses.
    pub(super) fn values<M: FromIterator<(String, Sdk)>>(&self) -> Option<M> {
        let values =
            self.values.iter().enumerate().map(|(at, value)| (format!(":v{at}"), value.clone().into()));
        (!self.values.is_empty()).then(|| values.collect())
    }
}

/// Returns whether this is a key attribute. Keys never change, so an update must not name them (DynamoDB refuses it
/// even for equal values).
fn is_key(name: &str) -> bool {
    name == "pk" || name == "sk"
}

fn number(value: &impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(guard: Guard) -> (String, Vec<String>, Vec<AttributeValue>) {
        let rendered = Expressions::of(&Operation::Check(guard));
        (rendered.condition, rendered.names, rendered.values)
    }

    #[test]
    fn every_guard_has_its_condition() {
        let text = |s: &str| AttributeValue::S(s.to_owned());
        for (guard, wanted, names, values) in [
            (Guard::Absent, "attribute_not_exists(#n0)", vec!["pk"], vec![]),
            (Guard::Exists, "attribute_exists(#n0)", vec!["pk"], vec![]),
            (Guard::Version(7), "#n0 = :v0", vec!["version"], vec![number(&7)]),
            (
                Guard::Image("u-1".parse().unwrap(), 7),
                "#n0 = :v0 AND #n1 = :v1",
                vec!["uid", "version"],
                vec![text("u-1"), number(&7)],
            ),
            (Guard::Beat(0), "#n0 = :v0", vec!["heartbeatSeq"], vec![number(&0)]),
            (Guard::Lease(3), "#n0 = :v0", vec!["token"], vec![number(&3)]),
            (Guard::StillProvisioned, "#n0 = :v0", vec!["desired"], vec![text("provisioned")]),
            (Guard::Anything, "attribute_not_exists(#n0) OR attribute_exists(#n0)", vec!["pk"], vec![]),
            (Guard::ExpiresAt(-1), "#n0 = :v0", vec!["expiresAt"], vec![number(&-1)]),
        ] {
            assert_eq!(condition(guard.clone()).0, wanted, "{guard:?}");
            assert_eq!(condition(guard.clone()).1, names, "{guard:?}");
            assert_eq!(condition(guard.clone()).2, values, "{guard:?}");
        }
    }

    #[test]
    fn an_update_sets_removes_and_adds_in_one_expression() {
        let rendered = Expressions::of(&Operation::Update {
            guard: Guard::Version(1),
            set: [("state".into(), AttributeValue::S("idle".into())), ("version".into(), number(&2))].into(),
            remove: ["pooledAt".into()].into(),
            add: [("uses".into(), 1)].into(),
        });
        assert_eq!(rendered.condition, "#n0 = :v0");
        assert_eq!(rendered.update.as_deref(), Some("SET #n1 = :v1, #n0 = :v2 REMOVE #n2 ADD #n3 :v3"));
        assert_eq!(rendered.names, ["version", "state", "pooledAt", "uses"]);
    }

    #[test]
    fn a_creation_leaves_the_key_to_the_key() {
        let item = ["pk", "sk", "kind"].map(|name| (name.to_owned(), AttributeValue::S("x".into())));
        let rendered = Expressions::of(&Operation::Create(item.into()));
        assert_eq!(rendered.update.as_deref(), Some("SET #n1 = :v0"));
    }
}

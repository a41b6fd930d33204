//! What does a policy answer? IAM's evaluation as its reference describes it, for what the policies here use; anything
//! else in a policy fails the test rather than being passed over.
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html>

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What a request says beside its action and resource.
pub(crate) type Context = BTreeMap<String, Vec<String>>;

/// Whether a policy alone allows a call.
pub(crate) fn allows(policy: &Value, action: &str, resource: &str, context: &Context) -> bool {
    let matching: Vec<&str> = policy["Statement"]
        .as_array()
        .expect("a list of statements")
        .iter()
        .filter(|statement| applies(statement, action, resource, context))
        .map(|statement| statement["Effect"].as_str().expect("an effect"))
        .collect();
    assert!(matching.iter().all(|effect| ["Allow", "Deny"].contains(effect)));
    matching.contains(&"Allow") && !matching.contains(&"Deny")
}

fn applies(statement: &Value, action: &str, resource: &str, context: &Context) -> bool {
    for name in statement.as_object().expect("a statement").keys() {
        assert!(["Sid", "Effect", "Action", "Resource", "Condition"].contains(&name.as_str()), "{name}");
    }
    let action = action.to_ascii_lowercase();
    let acts = texts(&statement["Action"]).iter().any(|glob| like(&glob.to_ascii_lowercase(), &action));
    let named = texts(&statement["Resource"])
        .iter()
        .any(|glob| substituted(glob, context).is_some_and(|glob| like(&glob, resource)));
    let empty = Map::new();
    let conditions =
        statement.get("Condition").map_or(&empty, |value| value.as_object().expect("conditions"));
    acts && named && conditions.iter().all(|(operator, keys)| holds(operator, keys, context))
}

fn holds(operator: &str, keys: &Value, context: &Context) -> bool {
    keys.as_object().expect("keys").iter().all(|(key, wanted)| {
        let told = context.get(key);
        let wanted = texts(wanted);
        if operator == "Null" {
            return (wanted == ["true"]) == told.is_none();
        }
        let (all, operator) = match operator.strip_prefix("ForAllValues:") {
            Some(operator) => (true, operator),
            None => (false, operator),
        };
        let matches = |told: &String| {
            wanted.iter().any(|wanted| match (operator, substituted(wanted, context)) {
                (_, None) => false,
                ("StringEquals", Some(wanted)) => wanted == *told,
                ("StringLike", Some(wanted)) => like(&wanted, told),
                (other, _) => panic!("the condition operator {other} is not known here"),
            })
        };
        match told {
            // Of no values, all match.
            None => all,
            Some(told) if all => told.iter().all(matches),
            Some(told) => {
                assert_eq!(told.len(), 1, "{key} has one value");
                matches(&told[0])
            }
        }
    })
}

/// With the policy's variables filled in; none when the request does not say one of them, and then nothing matches.
fn substituted(text: &str, context: &Context) -> Option<String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').expect("a variable ends");
        result.push_str(before);
        match context.get(name).map(Vec::as_slice) {
            Some([value]) => result.push_str(value),
            _ => return None,
        }
        rest = after;
    }
    result.push_str(rest);
    Some(result)
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().map(|one| one.as_str().expect("a text").to_owned()).collect(),
        other => panic!("neither a text nor a list: {other}"),
    }
}

/// `*` stands for any number of characters, `?` for one.
fn like(glob: &str, text: &str) -> bool {
    match glob.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = &glob[1..];
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| like(rest, &text[at..]))
        }
        Some(first) => text.chars().next().is_some_and(|found| {
            (first == '?' || first == found) && like(&glob[first.len_utf8()..], &text[found.len_utf8()..])
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn context(pairs: &[(&str, &[&str])]) -> Context {
        pairs
            .iter()
            .map(|(key, values)| ((*key).into(), values.iter().map(|v| (*v).into()).collect()))
            .collect()
    }

    fn policy(condition: Value) -> Value {
        json!({"Statement": [{"Effect": "Allow", "Action": "a:Get*", "Resource": "arn:x/*", "Condition": condition}]})
    }

    #[test]
    fn an_allowance_needs_a_matching_statement_and_no_denial() {
        let open = policy(json!({}));
        assert!(allows(&open, "a:GetItem", "arn:x/1", &Context::new()));
        assert!(allows(&open, "A:getitem", "arn:x/1", &Context::new()), "actions have no case");
        assert!(!allows(&open, "a:PutItem", "arn:x/1", &Context::new()));
        assert!(!allows(&open, "a:GetItem", "arn:y/1", &Context::new()));
        let denied =
            json!({"Statement": [open["Statement"][0], {"Effect": "Deny", "Action": "*", "Resource": "*"}]});
        assert!(!allows(&denied, "a:GetItem", "arn:x/1", &Context::new()));
    }

    #[test]
    fn all_of_no_values_match_unless_the_key_must_be_there() {
        let each = json!({"ForAllValues:StringLike": {"k": ["mine#*"]}});
        let both = json!({"ForAllValues:StringLike": {"k": ["mine#*"]}, "Null": {"k": "false"}});
        let asked = |condition: &Value, told: &[(&str, &[&str])]| {
            allows(&policy(condition.clone()), "a:Get", "arn:x/1", &context(told))
        };
        assert!(asked(&each, &[]), "the trap");
        assert!(!asked(&both, &[]));
        assert!(asked(&both, &[("k", &["mine#1", "mine#2"])]));
        assert!(!asked(&both, &[("k", &["mine#1", "yours#2"])]));
    }

    #[test]
    fn a_variable_that_the_request_does_not_say_matches_nothing() {
        let own = policy(json!({"StringEquals": {"k": "agent#${me}"}}));
        let asked = |told: &[(&str, &[&str])]| allows(&own, "a:Get", "arn:x/1", &context(told));
        assert!(asked(&[("k", &["agent#1"]), ("me", &["1"])]));
        assert!(!asked(&[("k", &["agent#1"]), ("me", &["2"])]));
        assert!(!asked(&[("k", &["agent#"])]));
    }
}

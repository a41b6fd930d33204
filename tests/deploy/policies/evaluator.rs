//! May this call be made? IAM's rules as far as our documents use them: explicit deny wins, then an allow is needed.
//! What is not understood is a panic, so that no statement is read as saying less than it does.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a call carries: condition keys in lower case, each with its values.
pub(crate) type Context = BTreeMap<String, Vec<String>>;

/// A call as IAM sees it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) action: String,
    pub(crate) resource: String,
    pub(crate) context: Context,
}

/// How a call is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// No statement allows it.
    NotAllowed,
    /// A statement denies it.
    Denied,
}

/// Judges a call by all documents that are attached.
pub(crate) fn judge(documents: &[Value], call: &Call) -> Verdict {
    let statements = documents.iter().flat_map(|document| {
        assert_eq!(document["Version"], "2012-10-17", "older versions know no policy variables");
        document["Statement"].as_array().expect("a list of statements")
    });
    let mut verdict = Verdict::NotAllowed;
    for statement in statements.filter(|statement| applies(statement, call)) {
        match statement["Effect"].as_str() {
            Some("Deny") => return Verdict::Denied,
            Some("Allow") => verdict = Verdict::Allowed,
            other => panic!("no effect {other:?}"),
        }
    }
    verdict
}

fn applies(statement: &Value, call: &Call) -> bool {
    for key in statement.as_object().expect("a statement").keys() {
        let known = ["Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"];
        assert!(known.contains(&key.as_str()), "no element {key}");
    }
    let action =
        |pattern: &String| like(&pattern.to_lowercase(), &call.action.to_lowercase(), &Context::new());
    let resource = |pattern: &String| like(pattern, &call.resource, &call.context);
    either(statement, "Action", "NotAction", action)
        && either(statement, "Resource", "NotResource", resource)
        && statement.get("Condition").is_none_or(|condition| holds(condition, &call.context))
}

/// Whether a statement's element, or its opposite, takes the call.
fn either(statement: &Value, element: &str, opposite: &str, takes: impl Fn(&String) -> bool) -> bool {
    match (statement.get(element), statement.get(opposite)) {
        (Some(values), None) => texts(values).iter().any(takes),
        (None, Some(values)) => !texts(values).iter().any(takes),
        _ => panic!("a statement needs {element} or {opposite}, and not both: {statement}"),
    }
}

/// Every operator and every key of it must hold.
fn holds(condition: &Value, context: &Context) -> bool {
    condition.as_object().expect("operators").iter().all(|(operator, keys)| {
        let mut keys = keys.as_object().expect("keys").iter();
        keys.all(|(key, wanted)| test(operator, &texts(wanted), context.get(&key.to_lowercase()), context))
    })
}

fn test(operator: &str, wanted: &[String], found: Option<&Vec<String>>, context: &Context) -> bool {
    if operator == "Null" {
        return wanted.iter().all(|wanted| (wanted == "true") == found.is_none());
    }
    if let Some(each) = operator.strip_prefix("ForAllValues:") {
        // True of nothing: hence the `Null` beside it.
        return found.is_none_or(|all| all.iter().all(|one| any(each, wanted, one, context)));
    }
    if let Some(each) = operator.strip_prefix("ForAnyValue:") {
        return found.is_some_and(|all| all.iter().any(|one| any(each, wanted, one, context)));
    }
    if let Some(each) = operator.strip_suffix("IfExists") {
        return found.is_none_or(|_| test(each, wanted, found, context));
    }
    match found.map(Vec::as_slice) {
        Some([one]) => any(operator, wanted, one, context),
        Some(several) => panic!("{operator} of {} values says nothing certain", several.len()),
        // A negated operator is true of a key that is absent, any other is not.
        None => operator.contains("Not"),
    }
}

fn any(operator: &str, wanted: &[String], found: &str, context: &Context) -> bool {
    let equal = |wanted: &String| resolved(wanted, context).is_some_and(|wanted| wanted == found);
    let similar = |wanted: &String| like(wanted, found, context);
    match operator {
        "StringEquals" => wanted.iter().any(equal),
        "StringNotEquals" => !wanted.iter().any(equal),
        // The two are the same to IAM.
        "StringLike" | "ArnLike" | "ArnEquals" => wanted.iter().any(similar),
        "StringNotLike" | "ArnNotLike" | "ArnNotEquals" => !wanted.iter().any(similar),
        "Bool" => wanted.iter().any(|wanted| wanted == found),
        other => panic!("no operator {other}"),
    }
}

/// One value, or a list of them.
pub(crate) fn texts(values: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    values.as_array().map_or_else(|| vec![text(values)], |all| all.iter().map(text).collect())
}

/// A part of a pattern: what stands in a variable's value is never a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Plain(char),
    One,
    Many,
}

/// A pattern with its variables filled in; none when the call does not carry one of them.
fn parts(pattern: &str, context: &Context) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        if let Some((variable, after)) = rest.strip_prefix("${").and_then(|rest| rest.split_once('}')) {
            let Some([value]) = context.get(&variable.to_lowercase()).map(Vec::as_slice) else { return None };
            parts.extend(value.chars().map(Part::Plain));
            rest = after;
            continue;
        }
        parts.push(match c {
            '*' => Part::Many,
            '?' => Part::One,
            other => Part::Plain(other),
        });
        rest = &rest[c.len_utf8()..];
    }
    Some(parts)
}

fn resolved(pattern: &str, context: &Context) -> Option<String> {
    let char = |part: Part| match part {
        Part::Plain(c) => c,
        Part::One => '?',
        Part::Many => '*',
    };
    parts(pattern, context).map(|parts| parts.into_iter().map(char).collect())
}

fn like(pattern: &str, text: &str, context: &Context) -> bool {
    let text: Vec<char> = text.chars().collect();
    parts(pattern, context).is_some_and(|parts| matched(&parts, &text))
}

fn matched(parts: &[Part], text: &[char]) -> bool {
    match (parts.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((Part::Many, rest)), _) => {
            matched(rest, text) || text.split_first().is_some_and(|(_, text)| matched(parts, text))
        }
        (Some((Part::One, rest)), Some((_, text))) => matched(rest, text),
        (Some((Part::Plain(wanted), rest)), Some((found, text))) => wanted == found && matched(rest, text),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(statements: Value, context: &[(&str, &[&str])]) -> Verdict {
        let all = |values: &&[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let context = context.iter().map(|(key, values)| (key.to_lowercase(), all(values))).collect();
        let call = Call { action: "dynamodb:GetItem".into(), resource: "arn:t/a".into(), context };
        judge(&[json!({"Version": "2012-10-17", "Statement": statements})], &call)
    }

    fn allow(condition: Value) -> Value {
        json!([{"Effect": "Allow", "Action": "dynamodb:Get*", "Resource": "arn:t/?", "Condition": condition}])
    }

    #[test]
    fn an_explicit_deny_wins_and_nothing_said_is_no() {
        let yes = json!({"Effect": "Allow", "Action": "*", "Resource": "*"});
        let no = json!({"Effect": "Deny", "NotAction": "dynamodb:Query", "Resource": "*"});
        assert_eq!(verdict(json!([yes, no]), &[]), Verdict::Denied);
        assert_eq!(verdict(json!([yes]), &[]), Verdict::Allowed);
        assert_eq!(verdict(json!([]), &[]), Verdict::NotAllowed);
        let other = json!({"Effect": "Allow", "Action": "DYNAMODB:getitem", "NotResource": "arn:t/a"});
        assert_eq!(verdict(json!([other]), &[]), Verdict::NotAllowed);
    }

    #[test]
    fn for_all_values_is_true_of_nothing_and_null_closes_that() {
        let open = json!({"ForAllValues:StringEquals": {"k": ["a", "b"]}});
        for (values, wanted) in [
            (Some(&["a"][..]), Verdict::Allowed),
            (Some(&["a", "b"][..]), Verdict::Allowed),
            (Some(&["a", "c"][..]), Verdict::NotAllowed),
            (None, Verdict::Allowed),
        ] {
            let context: Vec<(&str, &[&str])> = values.map(|values| ("k", values)).into_iter().collect();
            assert_eq!(verdict(allow(open.clone()), &context), wanted, "{values:?}");
        }
        let closed = json!({"ForAllValues:StringEquals": {"k": "a"}, "Null": {"k": "false"}});
        assert_eq!(verdict(allow(closed.clone()), &[]), Verdict::NotAllowed);
        assert_eq!(verdict(allow(closed), &[("K", &["a"])]), Verdict::Allowed);
    }

    #[test]
    fn a_variable_is_filled_in_as_it_is_and_without_it_nothing_matches() {
        let own = json!({"StringLike": {"k": "own#${me}"}});
        let of = |me: &[(&str, &[&str])]| verdict(allow(own.clone()), me);
        assert_eq!(of(&[("k", &["own#i-1"]), ("me", &["i-1"])]), Verdict::Allowed);
        assert_eq!(of(&[("k", &["own#i-2"]), ("me", &["i-1"])]), Verdict::NotAllowed);
        assert_eq!(of(&[("k", &["own#i-2"]), ("me", &["*"])]), Verdict::NotAllowed, "no wildcard");
        assert_eq!(of(&[("k", &["own#"])]), Verdict::NotAllowed);
    }

    #[test]
    fn an_absent_key_fails_an_operator_and_satisfies_its_negation() {
        assert_eq!(verdict(allow(json!({"StringEquals": {"k": "a"}})), &[]), Verdict::NotAllowed);
        assert_eq!(verdict(allow(json!({"ArnNotEquals": {"k": "a"}})), &[]), Verdict::Allowed);
        assert_eq!(
            verdict(allow(json!({"StringEquals": {"k": "*"}})), &[("k", &["a"])]),
            Verdict::NotAllowed
        );
    }
}

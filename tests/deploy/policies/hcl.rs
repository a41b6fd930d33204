//! What is an expression of Terraform worth? Its language and its functions as far as the module uses them; what is not
//! understood is an error.

use std::collections::BTreeMap;

use hcl_edit::expr::{BinaryOperator, Expression, ForExpr, ObjectKey, TraversalOperator};
use hcl_edit::template::{Element, StringTemplate};
use serde_json::{Map, Value, json};

/// What names stand for.
pub(crate) type Names = BTreeMap<String, Value>;

/// The value of an expression.
pub(crate) fn value(expression: &Expression, names: &Names) -> Result<Value, String> {
    Ok(match expression {
        Expression::Null(_) => Value::Null,
        Expression::Bool(is) => json!(is.value()),
        Expression::Number(number) => {
            let number = number.value();
            number.as_u64().map(Value::from).ok_or_else(|| format!("no whole number: {number}"))?
        }
        Expression::String(text) => json!(text.as_str()),
        Expression::StringTemplate(template) => json!(interpolated(template, names)?),
        Expression::Array(all) => all.iter().map(|one| value(one, names)).collect::<Result<_, _>>()?,
        Expression::Object(object) => {
            let pair = |(key, of): (&ObjectKey, &hcl_edit::expr::ObjectValue)| {
                let key = match key {
                    ObjectKey::Ident(name) => name.as_str().to_owned(),
                    ObjectKey::Expression(key) => text(&value(key, names)?)?.to_owned(),
                };
                Ok((key, value(of.expr(), names)?))
            };
            Value::Object(object.iter().map(pair).collect::<Result<_, String>>()?)
        }
        Expression::Parenthesis(inner) => value(inner.inner(), names)?,
        Expression::Variable(name) => {
            names.get(name.as_str()).cloned().ok_or_else(|| format!("no name {}", name.as_str()))?
        }
        Expression::Conditional(of) => {
            let holds = value(&of.cond_expr, names)? == json!(true);
            value(if holds { &of.true_expr } else { &of.false_expr }, names)?
        }
        Expression::FuncCall(call) => {
            let args = call.args.iter().map(|one| value(one, names)).collect::<Result<Vec<_>, _>>()?;
            function(call.name.name.as_str(), &args)?
        }
        Expression::Traversal(of) => {
            let operators: Vec<_> = of.operators.iter().map(hcl_edit::repr::Decorated::value).collect();
            steps(value(&of.expr, names)?, &operators, names)?
        }
        Expression::BinaryOp(of) => {
            let (left, right) = (value(&of.lhs_expr, names)?, value(&of.rhs_expr, names)?);
            match of.operator.value() {
                BinaryOperator::Eq => json!(left == right),
                BinaryOperator::NotEq => json!(left != right),
                BinaryOperator::Greater => json!(left.as_u64() > right.as_u64()),
                BinaryOperator::And => json!(left == json!(true) && right == json!(true)),
                other => return Err(format!("no operator {other:?}")),
            }
        }
        Expression::ForExpr(of) => each(of, names)?,
        Expression::HeredocTemplate(_) | Expression::UnaryOp(_) => return Err(format!("no {expression:?}")),
    })
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("no text: {value}"))
}

fn interpolated(template: &StringTemplate, names: &Names) -> Result<String, String> {
    let element = |element: &Element| match element {
        Element::Literal(text) => Ok(text.value().clone()),
        Element::Interpolation(of) => match value(&of.expr, names)? {
            Value::String(text) => Ok(text),
            other => Ok(other.to_string()),
        },
        Element::Directive(_) => Err("no directives".to_owned()),
    };
    template.iter().map(element).collect()
}

fn steps(found: Value, operators: &[&TraversalOperator], names: &Names) -> Result<Value, String> {
    match (operators, &found) {
        ([], _) => Ok(found),
        ([TraversalOperator::FullSplat(_), rest @ ..], Value::Array(all)) => {
            all.iter().map(|one| steps(one.clone(), rest, names)).collect()
        }
        ([operator, rest @ ..], _) => steps(step(&found, operator, names)?, rest, names),
    }
}

fn step(found: &Value, operator: &TraversalOperator, names: &Names) -> Result<Value, String> {
    let key = match operator {
        TraversalOperator::GetAttr(name) => json!(name.as_str()),
        TraversalOperator::Index(index) => value(index, names)?,
        other => return Err(format!("no {other:?}")),
    };
    let inner = match &key {
        Value::Number(at) => found.get(at.as_u64().unwrap_or(u64::MAX) as usize),
        other => found.get(text(other)?),
    };
    inner.cloned().ok_or_else(|| format!("{found} has no {key}"))
}

fn each(of: &ForExpr, names: &Names) -> Result<Value, String> {
    let all: Vec<(Value, Value)> = match value(&of.intro.collection_expr, names)? {
        Value::Array(all) => all.into_iter().enumerate().map(|(at, one)| (json!(at), one)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, one)| (json!(key), one)).collect(),
        other => return Err(format!("no collection: {other}")),
    };
    let (mut list, mut map) = (Vec::new(), Map::new());
    for (key, one) in all {
        let mut inner = names.clone();
        if let Some(name) = &of.intro.key_var {
            inner.insert(name.as_str().to_owned(), key);
        }
        inner.insert(of.intro.value_var.as_str().to_owned(), one);
        if let Some(condition) = &of.cond
            && value(&condition.expr, &inner)? != json!(true)
        {
            continue;
        }
        let made = value(&of.value_expr, &inner)?;
        match &of.key_expr {
            Some(key) => drop(map.insert(text(&value(key, &inner)?)?.to_owned(), made)),
            None => list.push(made),
        }
    }
    Ok(if of.key_expr.is_some() { Value::Object(map) } else { Value::Array(list) })
}

fn function(name: &str, args: &[Value]) -> Result<Value, String> {
    let arg = |at: usize| args.get(at).ok_or_else(|| format!("{name} lacks an argument"));
    let of = |at: usize| arg(at).and_then(text);
    Ok(match name {
        "file" => json!(std::fs::read_to_string(of(0)?).map_err(|error| error.to_string())?),
        "replace" => json!(of(0)?.replace(of(1)?, of(2)?)),
        "join" => {
            let all = arg(1)?.as_array().ok_or_else(|| format!("no list: {args:?}"))?;
            json!(all.iter().map(text).collect::<Result<Vec<_>, _>>()?.join(of(0)?))
        }
        "lower" => json!(of(0)?.to_lowercase()),
        "jsonencode" => json!(arg(0)?.to_string()),
        "jsondecode" => serde_json::from_str(of(0)?).map_err(|error| error.to_string())?,
        "toset" => arg(0)?.clone(),
        "one" => match arg(0)?.as_array().map(Vec::as_slice) {
            Some([]) => Value::Null,
            Some([only]) => only.clone(),
            _ => return Err(format!("not at most one: {}", arg(0)?)),
        },
        "length" => match arg(0)? {
            Value::Array(all) => json!(all.len()),
            Value::Object(all) => json!(all.len()),
            other => return Err(format!("no length of {other}")),
        },
        "concat" => args.iter().flat_map(|list| list.as_array().cloned().unwrap_or_default()).collect(),
        "merge" => {
            let maps = args.iter().map(|map| map.as_object().cloned().ok_or("merge takes objects"));
            let maps = maps.collect::<Result<Vec<_>, _>>()?;
            Value::Object(maps.into_iter().flatten().collect())
        }
        "lookup" => arg(0)?.get(of(1)?).map_or_else(|| arg(2).cloned(), |found| Ok(found.clone()))?,
        other => return Err(format!("no function {other}")),
    })
}

#[test]
fn expressions_are_worth_what_terraform_says() {
    let names: Names =
        [("a".to_owned(), json!({"b": ["x", "y"], "C": {"d": 1}})), ("n".into(), json!("z"))].into();
    for (expression, wanted) in [
        (r#""${n}-$${n}""#, json!("z-${n}")),
        (r#"a.b[1] == "y" ? n : a.missing"#, json!("z")),
        (r#"one([{ x = a.b[0] }][*].x)"#, json!("x")),
        (r#"[for at, one in a.b : "${at}${one}" if one != "x"]"#, json!(["1y"])),
        (r#"{ for key, of in a : lower(key) => length(of) }"#, json!({"b": 2, "c": 1})),
        (r#"merge({ (n) = 1 }, lookup(a, "missing", { k = true }))"#, json!({"z": 1, "k": true})),
        (r#"join("-", a.b)"#, json!("x-y")),
        (r#"jsondecode(jsonencode(concat(a.b, ["w"])))"#, json!(["x", "y", "w"])),
    ] {
        let parsed: Expression = expression.parse().unwrap();
        assert_eq!(value(&parsed, &names), Ok(wanted), "{expression}");
    }
    let missing: Expression = "a.missing".parse().unwrap();
    assert!(value(&missing, &names).is_err());
}

//! What would CloudFormation make of `config/cloudformation.yaml` with these parameters? Its functions as far as the
//! template uses them; what is not understood is a panic.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::policies::documents::config;

/// The template as it is written.
pub(crate) fn template() -> Value {
    let path = config().join("cloudformation.yaml");
    serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).expect("YAML without tags")
}

/// The template with its parameters filled in.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    template: Value,
    parameters: BTreeMap<String, Value>,
}

impl Stack {
    /// For the account, table and owner of the documents, and with these parameters; the others have their defaults.
    pub(crate) fn with(given: &[(&str, &str)]) -> Self {
        let template = template();
        let declared = template["Parameters"].as_object().expect("parameters");
        let mut parameters: BTreeMap<String, Value> = declared
            .iter()
            .filter_map(|(name, declared)| Some((name.clone(), declared.get("Default")?.clone())))
            .collect();
        let always = [
            ("AWS::Partition", "aws"),
            ("AWS::URLSuffix", "amazonaws.com"),
            ("AWS::Region", "eu-west-1"),
            ("AWS::AccountId", "123456789012"),
            ("TableName", "yard"),
            ("GitHubOwner", "acme"),
            ("GitHubOwnerInKeys", "acme"),
            ("InstanceTypes", "m7i.*"),
        ];
        for (name, value) in always.iter().chain(given) {
            assert!(name.starts_with("AWS::") || declared.contains_key(*name), "no parameter {name}");
            parameters.insert((*name).to_owned(), json!(value));
        }
        Self { template, parameters }
    }

    /// Why CloudFormation would not take these parameters together: the first of the template's rules that is broken.
    pub(crate) fn refusal(&self) -> Option<String> {
        let rules = self.template["Rules"].as_object().expect("rules");
        let meant =
            rules.values().filter(|rule| rule.get("RuleCondition").is_none_or(|when| self.truth(when)));
        let mut assertions = meant.flat_map(|rule| rule["Assertions"].as_array().expect("assertions"));
        let broken = assertions.find(|one| !self.truth(&one["Assert"]))?;
        Some(broken["AssertDescription"].as_str().expect("a description").to_owned())
    }

    /// The properties of a resource; none where its condition leaves it out.
    pub(crate) fn properties(&self, name: &str) -> Option<Value> {
        let resource = &self.template["Resources"][name];
        assert!(resource.is_object(), "no resource {name}");
        self.made(resource).then(|| self.resolved(&resource["Properties"]).unwrap_or_default())
    }

    /// What the stack tells of itself, by name.
    pub(crate) fn outputs(&self) -> BTreeMap<String, Value> {
        let all = self.template["Outputs"].as_object().expect("outputs").iter();
        all.filter(|(_, output)| self.made(output))
            .filter_map(|(name, output)| Some((name.clone(), self.resolved(&output["Value"])?)))
            .collect()
    }

    fn made(&self, part: &Value) -> bool {
        part["Condition"].as_str().is_none_or(|name| self.condition(name))
    }

    fn condition(&self, name: &str) -> bool {
        let condition = &self.template["Conditions"][name];
        assert!(condition.is_object(), "no condition {name}");
        self.truth(condition)
    }

    fn truth(&self, condition: &Value) -> bool {
        let (function, of) = only(condition);
        let of_all = || of.as_array().expect("a list").iter();
        match function {
            "Fn::Equals" => self.resolved(&of[0]) == self.resolved(&of[1]),
            "Fn::Not" => !self.truth(&of[0]),
            "Fn::And" => of_all().all(|one| self.truth(one)),
            "Fn::Or" => of_all().any(|one| self.truth(one)),
            "Condition" => self.condition(of.as_str().expect("a name")),
            other => panic!("no condition {other}"),
        }
    }

    /// A value as CloudFormation would have it; none is `AWS::NoValue`.
    fn resolved(&self, value: &Value) -> Option<Value> {
        let map = match value {
            Value::Array(all) => return Some(all.iter().filter_map(|one| self.resolved(one)).collect()),
            Value::Object(map) => map,
            other => return Some(other.clone()),
        };
        if map.len() != 1 || !map.keys().all(|key| key == "Ref" || key.starts_with("Fn::")) {
            let filled = |(key, value): (&String, &Value)| Some((key.clone(), self.resolved(value)?));
            return Some(map.iter().filter_map(filled).collect::<Map<_, _>>().into());
        }
        let (function, of) = only(value);
        match (function, of) {
            ("Ref", Value::String(name)) if name == "AWS::NoValue" => None,
            ("Ref", Value::String(name)) => Some(self.named(name)),
            ("Fn::Sub", Value::String(text)) => Some(json!(self.substituted(text))),
            ("Fn::If", Value::Array(of)) => {
                let when = self.condition(of[0].as_str().expect("a condition"));
                self.resolved(&of[if when { 1 } else { 2 }])
            }
            ("Fn::Split", Value::Array(of)) => {
                let (by, text) = (of[0].as_str().expect("text"), self.resolved(&of[1])?);
                Some(text.as_str().expect("text").split(by).collect())
            }
            // An attribute of what is not there yet: told apart by its name.
            ("Fn::GetAtt", of) => Some(json!({"Fn::GetAtt": of})),
            (other, _) => panic!("no function {other}"),
        }
    }

    fn named(&self, name: &str) -> Value {
        let resource = || {
            assert!(self.template["Resources"][name].is_object(), "neither parameter nor resource: {name}");
            json!({"Ref": name})
        };
        match (self.parameters.get(name), self.template["Parameters"][name]["Type"].as_str()) {
            (Some(Value::String(list)), Some("CommaDelimitedList")) => list.split(',').collect(),
            (Some(value), _) => value.clone(),
            (None, _) => resource(),
        }
    }

    fn substituted(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').expect("a closing brace");
            out.push_str(before);
            match name.strip_prefix('!') {
                Some(literal) => out.push_str(&format!("${{{literal}}}")),
                None => match self.named(name.split('.').next().unwrap_or(name)) {
                    Value::String(value) => out.push_str(&value),
                    _ => out.push_str(&format!("<{name}>")),
                },
            }
            rest = after;
        }
        out + rest
    }
}

/// The one key of a function and what it is of.
fn only(value: &Value) -> (&str, &Value) {
    let map = value.as_object().expect("a function");
    assert_eq!(map.len(), 1, "one function: {value}");
    map.iter().next().map(|(key, of)| (key.as_str(), of)).expect("one key")
}

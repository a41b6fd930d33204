//! Reads the outputs of the CloudFormation stack, or of the Terraform module, to complete the `launch` of pools that do
//! not name their network.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use runyard_core::model::{FieldError, TableName};

/// Maximum size of the outputs, in bytes.
const LONGEST: u64 = 1 << 20;

/// Which stack completes the pools.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StackArgs {
    /// CloudFormation stack whose outputs (subnets, security group, instance profile) complete each pool's launch; read
    /// by the `aws` program
    #[arg(long, value_name = "NAME", requires = "file", conflicts_with = "stack_outputs")]
    stack: Option<String>,
    /// The same outputs from a file (`-`: standard input), as `aws cloudformation describe-stacks` or `terraform output
    /// -json` prints them
    #[arg(long, value_name = "FILE", requires = "file")]
    stack_outputs: Option<PathBuf>,
    /// The options by which `aws` is told of the yard that was chosen.
    #[arg(skip)]
    aws: Vec<String>,
}

/// The outputs of a stack that pools need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outputs(BTreeMap<String, Value>);

impl StackArgs {
    /// Adds the region and profile of the chosen yard to the calls of `aws`. Without these options `aws` uses the
    /// shell's own environment.
    pub(crate) fn of_yard(&self, environment: &Environment) -> Self {
        let region = environment.get("AWS_REGION").map(|region| ["--region", region]);
        let profile = environment.profile.as_deref().map(|profile| ["--profile", profile]);
        let aws = region.into_iter().chain(profile).flatten().map(str::to_owned).collect();
        Self { aws, ..self.clone() }
    }

    /// Reads the outputs of the given stack; they are empty if no stack was given.
    ///
    /// # Errors
    /// They cannot be read, or belong to another table.
    pub(crate) fn outputs(&self, table: &TableName) -> CliResult<Outputs> {
        let (field, named, text) = match (&self.stack, &self.stack_outputs) {
            (Some(name), _) => ("--stack", name.clone(), ask(name, &self.aws).map_err(CliFailure::usage)?),
            (None, Some(file)) => {
                let named = file.display().to_string();
                (
                    "--stack-outputs",
                    named.clone(),
                    read(file).map_err(|why| {
                        let fix = "check the path and its permissions";
                        CliFailure::usage(FieldError::new("--stack-outputs", named, why.to_string(), fix))
                    })?,
                )
            }
            (None, None) => return Ok(Outputs::default()),
        };
        let refused =
            |message: String, fix: &str| CliFailure::usage(FieldError::new(field, &named, message, fix));
        let outputs = Outputs::parse(&text).map_err(|why| {
            let fix = "give what `aws cloudformation describe-stacks --stack-name NAME` or `terraform output -json` writes";
            refused(why, fix)
        })?;
        match outputs.text("Table") {
            Some(of) if of != table.as_str() => {
                let message = format!("made the table {of}, and this is about {table}");
                Err(refused(message, &format!("add --table {of}, or name the stack of {table}")))
            }
            Some(_) => Ok(outputs),
            None => Err(refused(
                "has no output Table".into(),
                "name a stack of config/cloudformation.yaml or config/terraform",
            )),
        }
    }
}

fn ask(name: &str, aws: &[String]) -> Result<String, FieldError> {
    let refused = |message: String, fix| FieldError::new("--stack", name, message, fix);
    let asked = ["cloudformation", "describe-stacks", "--output", "json", "--stack-name", name];
    let answer = Command::new("aws").args(asked).args(aws).output().map_err(|error| {
        let fix = "install the AWS command line, or give its answer by --stack-outputs";
        refused(format!("the program aws cannot be run: {error}"), fix)
    })?;
    if !answer.status.success() {
        let why = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
        return Err(refused(
            format!("aws refused: {why}"),
            "check the stack's name, the region and the credential",
        ));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(LONGEST).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Normalises a name, so that CloudFormation's `SubnetIds` and Terraform's `subnet_ids` are equal.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

impl Outputs {
    fn parse(text: &str) -> Result<Self, String> {
        let whole: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        let Some(stacks) = whole.get("Stacks") else { return Self::terraform(&whole) };
        let Some([stack]) = stacks.as_array().map(Vec::as_slice) else {
            return Err("is not of one stack".into());
        };
        let outputs =
            stack.get("Outputs").and_then(Value::as_array).ok_or("has no outputs: it may not be complete")?;
        let pair = |output: &Value| {
            Some((plain(output.get("OutputKey")?.as_str()?), output.get("OutputValue")?.clone()))
        };
        Ok(Self(outputs.iter().filter_map(pair).collect()))
    }

    fn terraform(whole: &Value) -> Result<Self, String> {
        let map = whole.as_object().ok_or("is neither of CloudFormation nor of Terraform")?;
        let pair = |(name, output): (&String, &Value)| Some((plain(name), output.get("value")?.clone()));
        Ok(Self(map.iter().filter_map(pair).collect()))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(&plain(name)).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns a list output: Terraform's are lists, CloudFormation's are texts with commas.
    fn list(&self, name: &str) -> Vec<Value> {
        match self.0.get(&plain(name)) {
            Some(Value::Array(all)) => all.clone(),
            Some(Value::String(text)) => {
                text.split(',').filter(|one| !one.is_empty()).map(Value::from).collect()
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Completes a pool's `launch` with the values that it omits. A pool with a launch template of its own, or without
    /// `launch`, remains unchanged.
    pub(crate) fn complete(&self, entry: &mut Value) {
        let Some(launch) = entry.get_mut("launch").and_then(Value::as_object_mut) else { return };
        if launch.contains_key("launchTemplateId") {
            return;
        }
        let profile = self.text("MachineProfile").map(Value::from);
        let listed = |name| Some(self.list(name)).filter(|all| !all.is_empty()).map(Value::from);
        for (key, value) in [
            ("instanceProfile", profile),
            ("subnetIds", listed("SubnetIds")),
            ("securityGroupIds", listed("MachineSecurityGroup")),
        ] {
            if let Some(value) = value.filter(|_| !launch.contains_key(key)) {
                launch.insert(key.into(), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cloudformation() -> String {
        let output =
            |key: &str, value: &str| json!({"OutputKey": key, "OutputValue": value, "Description": "d"});
        json!({"Stacks": [{"StackName": "yard", "Outputs": [
            output("Table", "yard"), output("MachineProfile", "yard-machine"),
            output("SubnetIds", "subnet-01,subnet-02"), output("MachineSecurityGroup", "sg-01"),
        ]}]})
        .to_string()
    }

    fn terraform() -> String {
        let output = |value: Value| json!({"sensitive": false, "type": "any", "value": value});
        json!({"table": output(json!("yard")), "machine_profile": output(json!("yard-machine")),
            "subnet_ids": output(json!(["subnet-01", "subnet-02"])), "machine_security_group": output(json!("sg-01"))})
        .to_string()
    }

    fn named(text: &str, table: &str) -> CliResult<Outputs> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let args = StackArgs { stack: None, stack_outputs: Some(file.path().to_owned()), aws: Vec::new() };
        args.outputs(&TableName::parse(table).unwrap())
    }

    #[test]
    fn a_stack_of_either_kind_completes_what_a_pool_leaves_out() {
        for text in [cloudformation(), terraform()] {
            let outputs = named(&text, "yard").unwrap();
            let mut pool =
                json!({"resourceClass": "linux", "launch": {"ami": "ami-1", "subnetIds": ["subnet-09"]}});
            outputs.complete(&mut pool);
            let wanted = json!({"ami": "ami-1", "subnetIds": ["subnet-09"], "instanceProfile": "yard-machine",
                "securityGroupIds": ["sg-01"]});
            assert_eq!(pool["launch"], wanted);
            let mut bare = json!({"resourceClass": "linux", "launch": {"ami": "ami-1"}});
            outputs.complete(&mut bare);
            assert_eq!(bare["launch"]["subnetIds"], json!(["subnet-01", "subnet-02"]));
        }
    }

    #[test]
    fn aws_is_asked_at_the_yard_that_was_chosen() {
        let mut environment = Environment::of(&[("AWS_REGION", "eu-north-1"), ("AWS_PROFILE", "shell")]);
        assert_eq!(StackArgs::default().of_yard(&environment).aws, ["--region", "eu-north-1"]);
        environment.profile = Some("work".into());
        environment.forget("AWS_REGION");
        assert_eq!(StackArgs::default().of_yard(&environment).aws, ["--profile", "work"]);
    }

    #[test]
    fn a_pool_with_a_template_of_its_own_or_without_launch_is_left_as_it_is() {
        let outputs = named(&cloudformation(), "yard").unwrap();
        for pool in [json!({"launch": {"launchTemplateId": "lt-1"}}), json!({"resourceClass": "linux"})] {
            let mut same = pool.clone();
            outputs.complete(&mut same);
            assert_eq!(same, pool);
        }
    }

    #[test]
    fn a_stack_of_another_table_or_none_is_refused_with_the_option_that_mends_it() {
        let problem = |text: &str, table: &str| {
            let failure = named(text, table).unwrap_err();
            failure.problems[0].to_string()
        };
        assert!(problem(&cloudformation(), "other").contains("--table yard"));
        for text in ["", "[]", "{}", r#"{"Stacks": []}"#, r#"{"Stacks": [{}]}"#] {
            let told = problem(text, "yard");
            assert!(told.contains("--stack-outputs"), "{text}: {told}");
        }
    }
}

//! Do the rights that `docs/how-to/install.md` names for `runyard ssh` open a shell on a machine, and nothing else?

use serde_json::{Value, json};

use crate::policies::documents::{config, document};
use crate::policies::evaluator::{Call, Context, Verdict, judge, texts};

/// The statement of the page.
fn statement() -> Value {
    let page = std::fs::read_to_string(config().join("../docs/how-to/install.md")).unwrap();
    let (_, section) = page.split_once("\n### A shell on machines\n").expect("the section");
    let (_, block) = section.split_once("```json\n").expect("a statement");
    serde_json::from_str(block.split("```").next().unwrap()).expect("JSON")
}

/// The machines' document, in which `NothingElse` lets these actions pass.
fn opened(name: &str, actions: &[String]) -> Value {
    let mut document = document(name);
    let statements = document["Statement"].as_array_mut().expect("statements");
    let nothing = statements.iter_mut().find(|one| one["Sid"] == "NothingElse").expect("NothingElse");
    nothing["NotAction"].as_array_mut().expect("actions").extend(actions.iter().map(|one| json!(one)));
    document
}

#[test]
fn a_shell_needs_the_rights_that_the_page_and_the_help_name_and_gives_no_other() {
    let statement = statement();
    let actions = texts(&statement["Action"]);
    assert_eq!(actions.len(), 5);
    let help = std::fs::read_to_string(config().join("../src/cli/change/ssh.rs")).unwrap();
    let beside = json!({"Version": "2012-10-17", "Statement": [statement]});
    let may = |documents: &[Value], action: &str| {
        let call = Call { action: action.to_owned(), resource: "*".to_owned(), context: Context::new() };
        judge(documents, &call)
    };
    for name in ["instance", "instance-any-record"] {
        for action in &actions {
            assert!(help.contains(action.as_str()), "the help does not name {action}");
            let attached = [document(name), beside.clone()];
            assert_eq!(may(&attached, action), Verdict::Denied, "{action} is only attached");
            let both = [opened(name, &actions), beside.clone()];
            assert_eq!(may(&both, action), Verdict::Allowed, "{action}");
        }
        let everything = json!({"Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]});
        for action in ["ssm:GetParameter", "ssm:SendCommand", "ssmmessages:Anything", "s3:GetObject"] {
            assert_eq!(
                may(&[opened(name, &actions), everything.clone()], action),
                Verdict::Denied,
                "{action}"
            );
        }
    }
}

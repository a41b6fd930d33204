//! What the plans found: each a bug of the operator that is mended, with its story.

use crate::drive::run;
use crate::plan::{Call, Kind, Plan, Role};
use crate::workloads::named;

/// The intent of a launch was written and its answer lost. Nobody but the call itself knew the new launch's name, so
/// what was read afterwards was the word that stands for "the launches of this class" where records under way are
/// remembered; it looked like the key of the class's pool record, was of course not there, and so the operator took the
/// class for removed: until the next list of the table it launched nothing, not even what the intent asked for, and
/// where machines were wanted warm, too, it then launched more than anybody had wanted.
#[test]
fn a_launch_intent_whose_answer_is_lost_is_carried_on_with_at_once_and_once() {
    let intent = Call { role: Role::Effect, label: "transact +launch Intent & ?lease".into(), nth: 1 };
    let ran = run(named("cold_provision"), Plan(vec![(intent.clone(), Kind::Lost)]), None).unwrap();
    assert_eq!((ran.hits, ran.broken.as_slice()), (1, [].as_slice()), "{}", ran.shown);
    let after = ran.trace.iter().skip_while(|call| **call != intent).skip(1);
    let labels: Vec<&str> = after.map(|call| call.label.as_str()).collect();
    let launched = labels.iter().position(|label| *label == "compute launch").expect("it launches");
    assert!(!labels[..launched].contains(&"list"), "it waited for a list: {labels:?}");
    assert!(!labels.contains(&intent.label.as_str()), "it intended twice: {labels:?}");
}

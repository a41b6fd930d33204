//! What the plans found: each a bug of the operator that is mended, with its story.

use std::time::Duration;

use crate::crash_plans::drive::run;
use crate::crash_plans::plan::{Call, Kind, Plan, Role};
use crate::crash_plans::workloads::named;
use runyard_tests::world::{World, linux};

/// The intent of a launch was written and its answer lost. Nobody but the call itself knew the new launch's name, so
/// what was read afterwards was the word that stands for "the launches of this class" where records in progress are
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

/// A stand-by leaves what it knows of to the leader for two seconds. When the thing's own moment had passed already (a
/// machine in the pool that is due to be announced again, which only whoever announced it knows to be done), it set its
/// timer to that moment, which was at once, and so did nothing but look at it for these two seconds, a processor at
/// full load: at each re-announcement, and for every unit when the lease was lost because the table was away. In paused
/// time, which passes only while nobody runs, the two seconds never ended: the outage drill stood still.
#[tokio::test(start_paused = true)]
async fn a_stand_by_rests_while_it_leaves_a_thing_to_the_leader() {
    let world = World::new();
    world.pool(linux(2, 4)).await;
    world.start_as("one");
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    world.start_as("two");
    world.sleep(700).await;
    assert_eq!(world.pooled().len(), 2);
}

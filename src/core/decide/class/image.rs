//! Which image is a class launched from where its spec names a parameter? The image that the parameter named when it
//! was last resolved, which is pinned in the pool. So all machines of an hour have the same image, and a newer image
//! counts as a change of the class.

use crate::model::{Pool, Record, after};

use crate::decide::context::Context;
use crate::decide::{Plan, Planned};

/// Resolves the class's parameter when that is due.
pub(super) fn resolve(cx: &Context<'_>, pool: &Pool, plan: &mut Plan) {
    if pool.spec.launch.parameter().is_none() || cx.role.lease.is_none() {
        return;
    }
    if let Some(image) = pool.pinned() {
        let due = after(image.resolved_at, cx.policy.timing.image);
        if cx.now.wall < due {
            plan.wake_at(cx.now.when(due));
            return;
        }
    }
    if !cx.yard.is_busy(pool.key()) {
        plan.actions.push(Planned::resolve(pool));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::decide::Effect;
    use crate::model::{PinnedImage, Pool, pool_launch_digest};
    use crate::testing::{Scene, at, linux, machine, secs, start};

    const PARAMETER: &str = "/aws/service/debian/release/13/latest/amd64";

    fn spec() -> serde_json::Value {
        json!({"max": 5, "desired": 1, "launch": {"ami": format!("ssm:{PARAMETER}")}})
    }

    fn pool(scene: &Scene) -> Pool {
        scene.yard.class(&linux()).unwrap().pool.clone().unwrap()
    }

    fn pin(scene: &mut Scene, version: u64, ami: &str, resolved_at: jiff::Timestamp) {
        let mut pool = pool(scene);
        pool.status.image = Some(PinnedImage { parameter: PARAMETER.into(), ami: ami.into(), resolved_at });
        pool.version = version;
        scene.put(&pool);
    }

    fn resolves(scene: &Scene) -> usize {
        let plan = scene.of_class();
        plan.actions.iter().filter(|planned| matches!(planned.effect, Effect::Resolve(_))).count()
    }

    fn launched(scene: &Scene) -> usize {
        let plan = scene.of_class();
        plan.actions.iter().filter(|planned| matches!(planned.effect, Effect::Intend(..))).count()
    }

    #[test]
    fn a_class_is_launched_once_its_parameter_was_resolved() {
        let mut scene = Scene::with(spec());
        assert_eq!((resolves(&scene), launched(&scene)), (1, 0));
        assert!(scene.of_class().waits.iter().any(|wait| wait.message.contains(PARAMETER)));
        pin(&mut scene, 2, "ami-1", start());
        assert_eq!((resolves(&scene), launched(&scene)), (0, 1));
    }

    #[test]
    fn an_image_is_resolved_again_every_hour_and_serves_meanwhile() {
        let mut scene = Scene::with(spec());
        pin(&mut scene, 2, "ami-1", at(-3599));
        let plan = scene.of_class();
        assert!(plan.wake.is_some_and(|wake| wake <= scene.now.mono + secs(1)), "{plan:?}");
        assert_eq!(resolves(&scene), 0);
        pin(&mut scene, 3, "ami-1", at(-3600));
        assert_eq!((resolves(&scene), launched(&scene)), (1, 1));
        let plan = scene.of_class();
        let of_pool = plan.actions.iter().filter(|planned| planned.holds(Pool::key_of(&linux())));
        assert_eq!(of_pool.count(), 1, "one action a record");
    }

    #[test]
    fn only_the_leader_resolves_and_an_id_is_taken_as_it_is() {
        let mut scene = Scene::with(spec());
        scene.role.lease = None;
        assert_eq!(resolves(&scene), 0);
        let scene = Scene::with(json!({"max": 5, "desired": 1, "launch": {"ami": "ami-0123456789abcdef0"}}));
        assert_eq!((resolves(&scene), launched(&scene)), (0, 1));
    }

    #[test]
    fn a_class_that_names_another_parameter_waits_for_that_ones_image() {
        let mut scene = Scene::with(spec());
        pin(&mut scene, 2, "ami-1", start());
        let mut changed = pool(&scene);
        changed.spec.launch.ami = Some("ssm:/golden".into());
        changed.version = 3;
        scene.put(&changed);
        assert_eq!((resolves(&scene), launched(&scene)), (1, 0));
    }

    #[test]
    fn a_newer_image_makes_idle_machines_of_the_older_one_drift() {
        let mut scene = Scene::with(spec());
        pin(&mut scene, 2, "ami-1", start());
        let digest = pool_launch_digest(&pool(&scene));
        assert!(digest.is_some());
        scene.put(&machine("i-1").pooled().with(|i| i.facts.launch_digest = digest).instance);
        let drifted = |scene: &Scene| scene.yard.class(&linux()).unwrap().leaving.drifted.len();
        assert_eq!(drifted(&scene), 0);
        pin(&mut scene, 3, "ami-1", at(5));
        assert_eq!(drifted(&scene), 0, "the same image again");
        pin(&mut scene, 4, "ami-2", at(10));
        assert_eq!(drifted(&scene), 1);
        let mut changed = pool(&scene);
        changed.status.image = None;
        changed.version = 5;
        scene.put(&changed);
        assert_eq!(drifted(&scene), 0, "what is not known yet ends nobody");
    }
}

//! EC2 over the wire, as far as a yard needs it, with everything that goes wrong at the real one and at no emulator:
//! tokens that are remembered, fleets that come short, machines that are told of late, calls that are too many, answers
//! that are lost. What is to go wrong is set before a call (`Rules`) and counted in answers, not in seconds.

mod answer;
mod checks;
mod dry_runs;
mod fleets;
mod instances;
mod params;
mod rules;
mod templates;
mod types;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::oneshot;

pub use self::answer::Refused;
use self::answer::{Xml, body};
use self::params::Params;
pub use self::rules::{Bucket, Rules};
pub use self::types::{GROUPS, SUBNETS, TWIN, VPC};
pub use self::world::{Instance, OWNER, World};

type Shared = Arc<Mutex<World>>;

/// A peer that answers until this is dropped.
pub struct Peer {
    endpoint: String,
    world: Shared,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// On a free port of loopback, on a thread and a runtime of its own.
    pub fn start() -> Self {
        let world = Shared::default();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        listener.set_nonblocking(true).expect("tokio takes a non-blocking listener");
        let (stop, stopped) = oneshot::channel::<()>();
        let app = Router::new().fallback(answer).with_state(world.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for the peer");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listening socket");
                tokio::select! {
                    served = async { axum::serve(listener, app).await } => served.expect("the peer serves"),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { endpoint, world, stop: Some(stop), thread: Some(thread) }
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What is there.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how it behaves.
    pub fn rules(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.world().rules);
    }

    /// How often an action was asked for.
    pub fn calls(&self, action: &str) -> usize {
        self.world().calls.iter().filter(|(asked, _)| asked == action).count()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

async fn answer(State(world): State<Shared>, headers: HeaderMap, asked: Bytes) -> Response {
    let (silent, answer) = decided(&world, &headers, &asked);
    if silent {
        std::future::pending::<()>().await;
    }
    answer
}

/// The answer to a call, and whether it is kept back.
fn decided(world: &Shared, headers: &HeaderMap, asked: &Bytes) -> (bool, Response) {
    let asked = Params::parse(asked);
    let action = asked.text("Action").unwrap_or_default().to_owned();
    let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
    world.calls.push((action.clone(), asked.clone()));
    let signed = headers.get("authorization").is_some_and(|value| {
        value.to_str().is_ok_and(|value| value.starts_with("AWS4-HMAC-SHA256 Credential="))
    });
    let told = if signed {
        world.rules.admit(&action).and_then(|()| dispatch(&mut world, &action, &asked))
    } else {
        Err(Refused::new("AuthFailure", "AWS was not able to validate the provided access credentials"))
    };
    if told.is_ok() && world.rules.loses(&action) {
        return (false, lost());
    }
    let silent = told.is_ok() && world.rules.hangs(&action);
    let (status, text) = match told {
        Ok(children) => (200, body(&action, children)),
        Err(refused) => (refused.status, refused.body()),
    };
    let status = StatusCode::from_u16(status).expect("a status of HTTP");
    (silent, (status, [("content-type", "text/xml;charset=UTF-8")], text).into_response())
}

/// A connection that breaks before the answer is through.
fn lost() -> Response {
    let broken = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut")) });
    Response::new(Body::from_stream(broken))
}

fn dispatch(world: &mut World, action: &str, asked: &Params) -> Result<Vec<Xml>, Refused> {
    match action {
        "CreateFleet" => fleets::create(world, asked),
        "DescribeInstances" => instances::describe(world, asked),
        "GetConsoleOutput" => instances::console(world, asked),
        "RunInstances" => dry_runs::machine(world, asked),
        "TerminateInstances" => instances::terminate(world, asked),
        "CreateLaunchTemplate" => templates::create(world, asked),
        "CreateLaunchTemplateVersion" => templates::create_version(world, asked),
        "ModifyLaunchTemplate" => templates::modify(world, asked),
        "DescribeLaunchTemplates" => templates::describe(world, asked),
        "DescribeLaunchTemplateVersions" => templates::describe_versions(world, asked),
        "CreateTags" => world.tag(asked),
        "DescribeSubnets" => subnets(world, asked),
        "DescribeSecurityGroups" => Ok(groups(asked)),
        "DescribeImages" => images(world, asked),
        "GetEbsEncryptionByDefault" => {
            Ok(vec![Xml::text("ebsEncryptionByDefault", world.rules.volumes_key.is_some())])
        }
        "GetEbsDefaultKmsKeyId" => {
            Ok(vec![Xml::text("kmsKeyId", world.rules.volumes_key.as_deref().unwrap_or("alias/aws/ebs"))])
        }
        other => Err(Refused::new("InvalidAction", format!("The action {other} is not valid for this peer"))),
    }
}

/// What a filter of this name lets through.
fn filtered(asked: &Params, name: &str) -> Option<Vec<String>> {
    let filters = asked.list("Filter").into_iter();
    filters.filter(|filter| filter.text("Name") == Some(name)).map(|filter| filter.texts("Value")).next()
}

/// By id an unknown one refuses the whole call; a filter leaves it out.
fn subnets(world: &World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let (ids, filter) = (asked.texts("SubnetId"), filtered(asked, "subnet-id"));
    let all: Vec<_> = SUBNETS.iter().chain([&TWIN]).collect();
    if let Some(unknown) = ids.iter().find(|wanted| all.iter().all(|(id, _)| id != wanted)) {
        let why = format!("The subnet ID '{unknown}' does not exist");
        return Err(Refused::new("InvalidSubnetID.NotFound", why));
    }
    let meant = |id: &str| {
        (ids.is_empty() || ids.iter().any(|wanted| wanted == id))
            && filter.as_ref().is_none_or(|filter| filter.iter().any(|wanted| wanted == id))
    };
    let told = all.into_iter().filter(|(id, _)| meant(id)).map(|(id, zone)| {
        let free = world.rules.free_addresses.get(id).copied().unwrap_or(250);
        vec![
            Xml::text("subnetId", id),
            Xml::text("availabilityZone", zone),
            Xml::text("availableIpAddressCount", free),
            Xml::text("vpcId", VPC),
            Xml::text("ownerId", OWNER),
        ]
    });
    Ok(vec![Xml::set("subnetSet", told)])
}

fn groups(asked: &Params) -> Vec<Xml> {
    let filter = filtered(asked, "group-id");
    let meant =
        GROUPS.iter().filter(|(id, _)| filter.as_ref().is_none_or(|all| all.iter().any(|one| one == id)));
    let told = meant.map(|(id, vpc)| vec![Xml::text("groupId", id), Xml::text("vpcId", vpc)]);
    vec![Xml::set("securityGroupInfo", told)]
}

/// By their ids alone: what launch templates resolve, this call does not. One that is not there refuses the whole call.
fn images(world: &World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let ids = asked.texts("ImageId");
    if let Some(id) = ids.iter().find(|id| !id.starts_with("ami-")) {
        let why = format!("Invalid id: \"{id}\" (expecting \"ami-...\")");
        return Err(Refused::new("InvalidAMIID.Malformed", why));
    }
    if let Some(unknown) = ids.iter().find(|id| world.rules.no_images.contains(id.as_str())) {
        let why = format!("The image id '[{unknown}]' does not exist");
        return Err(Refused::new("InvalidAMIID.NotFound", why));
    }
    let root = "/dev/xvda";
    let told = ids.into_iter().map(|id| {
        let ebs = Xml::node("ebs", vec![Xml::text("volumeSize", world.rules.image_gib.unwrap_or(8))]);
        vec![
            Xml::text("imageId", id),
            Xml::text("imageState", "available"),
            Xml::text("architecture", world.rules.image_architecture.unwrap_or("x86_64")),
            Xml::text("rootDeviceName", root),
            Xml::set("blockDeviceMapping", [vec![Xml::text("deviceName", root), ebs]]),
        ]
    });
    Ok(vec![Xml::set("imagesSet", told)])
}

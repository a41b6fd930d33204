use super::metadata_fake::{FakeMetadata, Fault};
use super::*;

async fn service() -> (FakeMetadata, Metadata) {
    let fake = FakeMetadata::start().await;
    let metadata = Metadata::new(&fake.endpoint).unwrap();
    (fake, metadata)
}

fn tokens(fake: &FakeMetadata) -> usize {
    fake.asked().iter().filter(|asked| *asked == "put api/token").count()
}

#[tokio::test]
async fn a_machine_is_identified_with_one_token() {
    let (fake, metadata) = service().await;
    let identity = metadata.identity().await.unwrap();
    assert_eq!(identity.arn.as_str(), "arn:aws:ec2:eu-central-1:123456789012:instance/i-0123456789abcdef0");
    assert_eq!((identity.id.as_str(), identity.instance_type.as_str()), ("i-0123456789abcdef0", "m7i.large"));
    assert_eq!((identity.zone.as_str(), identity.life_cycle), ("eu-central-1b", LifeCycle::Spot));
    assert_eq!(identity.table, None, "tags are not shown by default");
    assert_eq!(tokens(&fake), 1);
    fake.set("meta-data/tags/instance/runyard:table", "yard");
    fake.set("meta-data/instance-life-cycle", "on-demand");
    let identity = metadata.identity().await.unwrap();
    assert_eq!((identity.table.as_deref(), identity.life_cycle), (Some("yard"), LifeCycle::OnDemand));
    assert_eq!(tokens(&fake), 1);
}

#[tokio::test]
async fn a_token_the_service_forgot_is_asked_for_anew_once() {
    let (fake, metadata) = service().await;
    assert_eq!(metadata.notice().await, Ok(None));
    fake.bad([Fault::ForgetsTokens]);
    assert_eq!(metadata.notice().await, Ok(None));
    assert_eq!(tokens(&fake), 2);
    fake.bad([Fault::Status(401), Fault::Status(401)]);
    let refused = Err(MetadataError::Refused(StatusCode::UNAUTHORIZED));
    assert_eq!(metadata.notice().await, refused);
}

#[tokio::test]
async fn boot_goes_on_asking_through_bad_answers() {
    let (fake, metadata) = service().await;
    fake.bad([Fault::HangsUp, Fault::Status(404), Fault::Status(503), Fault::Status(401)]);
    assert_eq!(metadata.identity().await.unwrap().id.as_str(), "i-0123456789abcdef0");
}

#[tokio::test]
async fn a_service_that_is_silent_or_away_is_unreachable_in_bounded_time() {
    let (fake, mut metadata) = service().await;
    metadata.http = Client::builder().no_proxy().timeout(Duration::from_millis(100)).build().unwrap();
    fake.bad([Fault::Silent]);
    assert!(matches!(metadata.notice().await, Err(MetadataError::Unreachable(_))));
    let nobody = Metadata::new("http://127.0.0.1:1").unwrap();
    assert!(matches!(nobody.notice().await, Err(MetadataError::Unreachable(_))));
    assert!(Metadata::new("169.254.169.254").is_err());
}

#[tokio::test]
async fn notices_are_read_and_the_end_comes_before_the_advice() {
    let (fake, metadata) = service().await;
    fake.set("meta-data/events/recommendations/rebalance", r#"{"noticeTime":"2026-10-27T08:22:00Z"}"#);
    let notice = metadata.notice().await.unwrap().unwrap();
    assert_eq!(
        (notice.action, notice.at.to_string().as_str()),
        (InterruptionAction::Rebalance, "2026-10-27T08:22:00Z")
    );
    for (word, action) in [
        ("terminate", InterruptionAction::Terminate),
        ("stop", InterruptionAction::Stop),
        ("hibernate", InterruptionAction::Stop),
    ] {
        let text = format!(r#"{{"action":"{word}","time":"2026-10-27T08:24:00Z"}}"#);
        fake.set("meta-data/spot/instance-action", &text);
        assert_eq!(metadata.notice().await.unwrap().unwrap().action, action);
    }
    fake.set("meta-data/spot/instance-action", "<html>");
    assert!(matches!(metadata.notice().await, Err(MetadataError::Garbled(_))));
    fake.remove("meta-data/spot/instance-action");
    fake.remove("meta-data/events/recommendations/rebalance");
    assert_eq!(metadata.notice().await, Ok(None));
}

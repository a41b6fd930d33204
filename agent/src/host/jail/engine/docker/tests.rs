use super::*;

fn paths(found: &[PathBuf]) -> Vec<&str> {
    found.iter().filter_map(|path| path.to_str()).collect()
}

#[test]
fn calls_are_known_by_docker_s_and_podman_s_own_paths_with_any_version() {
    for (target, api) in [
        ("/containers/create", Api::Docker),
        ("/v1.41/containers/create?name=a", Api::Docker),
        ("/v4.3.1/libpod/containers/create", Api::Podman),
    ] {
        assert_eq!(Call::of("POST", target), Call::Create(api), "{target}");
        assert_eq!(Call::of("GET", target), Call::Other);
    }
    for target in ["/volumes/create", "/containers/create/x", "/v1.41/containers/a/start", "/"] {
        assert_eq!(Call::of("POST", target), Call::Other, "{target}");
    }
}

#[test]
fn a_removal_by_force_waits_for_nothing_unless_its_time_is_named() {
    let of = |target: &str| Call::of("DELETE", target);
    let killing = |query: &str| format!("/v4.0.0/libpod/containers/a?force=true&timeout=0&{query}");
    assert_eq!(
        of("/v1.41/containers/a?force=1&v=1"),
        Call::Remove(Api::Docker, killing("volumes=true&depend=false&ignore=false"))
    );
    assert_eq!(
        of("/v4.3.1/libpod/containers/a?depend=true&force=true&ignore=true&volumes=false"),
        Call::Remove(Api::Podman, killing("volumes=false&depend=true&ignore=true"))
    );
    for other in [
        "/v4.3.1/libpod/containers/a?force=true&timeout=5",
        "/containers/a",
        "/containers/a?force=0",
        "/images/a?force=1",
    ] {
        assert_eq!(of(other), Call::Other, "{other}");
    }
}

#[test]
fn the_end_of_a_container_that_removes_itself_is_asked_for_while_it_is_known() {
    assert_eq!(
        Call::of("POST", "/v1.41/containers/a/wait?condition=removed"),
        Call::Wait("/v1.41/containers/a/wait?condition=next-exit".to_owned())
    );
    assert_eq!(Call::of("POST", "/v1.41/containers/a/wait?condition=next-exit"), Call::Other);
    assert_eq!(Call::of("POST", "/v4.0.0/libpod/containers/a/wait?condition=removed"), Call::Other);
}

#[test]
fn docker_s_binds_are_made_and_its_mounts_only_where_they_say_so() {
    let container = json!({"HostConfig": {
        "Binds": ["/a/new:/x", "/b:/y:ro", "volume:/v", "/c"],
        "Mounts": [
            {"Type": "bind", "Source": "/refused", "Target": "/z"},
            {"Type": "bind", "Source": "/made", "Target": "/q", "BindOptions": {"CreateMountpoint": true}},
        ],
    }});
    assert_eq!(paths(&sources(Api::Docker, &container)), ["/a/new", "/b", "/c", "/made"]);
    assert!(sources(Api::Docker, &json!({"HostConfig": {"Binds": null}})).is_empty());
}

#[test]
fn of_podman_s_own_mounts_those_of_volume_are_made_and_those_of_mount_are_not() {
    let container = json!({
        "command": ["--mount", "type=bind,src=/a,dst=/a"],
        "containerCreateCommand": ["podman", "--remote", "create", "-v", "/a:/a", "--mount",
            "type=bind,src=/refused,dst=/c/", "--mount=type=bind,source=/too,target=/d", "lab:1",
            "--mount", "type=bind,src=/a,dst=/a"],
        "mounts": [
            {"destination": "/c", "type": "bind", "source": "/refused"},
            {"destination": "/d", "type": "bind", "source": "/too"},
            {"destination": "/a", "type": "bind", "source": "/a"},
            {"destination": "/t", "type": "tmpfs", "source": "tmpfs"},
        ],
    });
    assert_eq!(paths(&sources(Api::Podman, &container)), ["/a"]);
}

#[test]
fn an_image_s_own_health_check_has_docker_s_retries() {
    let image = json!({"Test": ["CMD-SHELL", "true"], "Interval": 5});
    for (api, place) in [(Api::Docker, "Healthcheck"), (Api::Podman, "healthconfig")] {
        let mut container = json!({"image": "a", "Image": "a"});
        assert_eq!(image_to_ask(api, &container), Some("a"));
        assert!(set_health(api, &mut container, Some(&image)));
        let check = json!({"Test": ["CMD-SHELL", "true"], "Interval": 5, "Timeout": 30_000_000_000_u64, "Retries": 3});
        assert_eq!(container[place], check);
        assert!(!set_health(api, &mut container, None), "it is whole");
    }
}

#[test]
fn a_container_s_own_numbers_go_before_the_image_s() {
    let image = json!({"Test": ["CMD", "a"], "Interval": 5, "Timeout": 6, "Retries": 7});
    let mut container = json!({"Image": "a", "Healthcheck": {"Retries": 9, "Interval": 0}});
    assert!(set_health(Api::Docker, &mut container, Some(&image)));
    assert_eq!(
        container["Healthcheck"],
        json!({"Test": ["CMD", "a"], "Interval": 5, "Timeout": 6, "Retries": 9})
    );
}

#[test]
fn a_container_without_a_health_check_gets_none() {
    let without = [
        (json!({"image": "a"}), None),
        (json!({"image": "a"}), Some(json!({"Test": ["NONE"]}))),
        (json!({"image": "a", "healthconfig": {"Test": ["NONE"]}}), Some(json!({"Test": ["CMD", "a"]}))),
    ];
    for (container, image) in without {
        let mut asked = container.clone();
        assert!(!set_health(Api::Podman, &mut asked, image.as_ref()), "{container}");
        assert_eq!(asked, container);
    }
}

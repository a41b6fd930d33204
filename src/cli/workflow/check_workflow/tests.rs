use std::io::Write as _;

use super::*;
use runyard_core::model::Containers;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn check(text: &str, class: &Class) -> Report {
    report("test.yml", text, class).unwrap_or_else(|refusal| panic!("{refusal:?}\n{text}"))
}

/// Returns a workflow with one job on `ubuntu-latest` and these lines below it; the first is line 4.
fn job(lines: &str) -> String {
    format!("jobs:\n  a:\n    runs-on: ubuntu-latest\n{lines}")
}

/// Returns the levels, rules and lines of the only job's findings.
fn found(text: &str, class: &Class) -> Vec<String> {
    let report = check(text, class);
    let findings = report.jobs[0].findings.iter();
    findings.map(|one| format!("{} {} {}", one.level.word(), one.rule, one.line)).collect()
}

fn with(containers: Containers, root: bool) -> Class {
    Class { containers, root, ..Class::assumed() }
}

#[test]
fn the_assumed_class_is_the_first_of_the_pools_that_ship() {
    let file = Path::new(ROOT).join("config/pools.yaml");
    let table = TableName::parse("runyard").unwrap();
    let specs = pools::specs(&file, &StackArgs::default(), &table).unwrap();
    assert_eq!(Class::of(&specs[0]), Class::assumed());
}

/// A class that does not serve labels, so that a job of the workflow asks for its machines.
fn asked() -> Class {
    Class { run_labels: false, ..Class::assumed() }
}

#[test]
fn the_label_to_write_is_the_one_that_the_examples_have() {
    let small = Class { name: "small".into(), ..Class::assumed() };
    for (file, class) in [("config/workflows/example.yml", small), ("examples/gang.yml", asked())] {
        let example = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
        let runs_on = runs_on::words(&class).runs_on;
        assert!(example.contains(&format!("runs-on: {runs_on}\n")), "{file}: {runs_on}");
    }
}

#[test]
fn the_workflows_that_ship_borrow_already_and_need_containers_where_they_say_so() {
    for folder in ["examples", "config/workflows"] {
        for entry in std::fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|suffix| suffix != "yml") {
                continue;
            }
            let report = checked(&path, &Class::assumed()).unwrap();
            for job in &report.jobs {
                let fine = matches!(job.verdict, Verdict::Borrows | Verdict::Stays);
                let hosted = job.now.starts_with("ubuntu-");
                assert!(fine || hosted, "{}: {}: {}", path.display(), job.name, job.now);
            }
            assert_eq!(report.fails(), path.ends_with("containers.yml"), "{}", path.display());
            let rootless = checked(&path, &with(Containers::Rootless, false)).unwrap();
            assert!(!rootless.fails(), "{}", path.display());
        }
    }
}

#[test]
fn each_runs_on_is_judged_by_what_it_names() {
    let label = "${{ github.run_id }}-linux-x64";
    for (runs_on, verdict, rules) in [
        ("ubuntu-latest", Verdict::Moves, vec![]),
        ("[self-hosted, linux, x64]", Verdict::Moves, vec![]),
        ("depot-ubuntu-24.04-4", Verdict::Moves, vec![]),
        ("runs-on=${{ github.run_id }}/runner=2cpu-linux-x64", Verdict::Moves, vec![]),
        ("windows-2022", Verdict::Stays, vec!["operating-system"]),
        ("[self-hosted, Windows, X64]", Verdict::Stays, vec!["operating-system"]),
        ("macos-15-xlarge", Verdict::Stays, vec!["operating-system"]),
        ("ubuntu-24.04-arm", Verdict::Moves, vec!["architecture"]),
        ("[self-hosted, Linux, ARM64]", Verdict::Moves, vec!["architecture"]),
        ("[self-hosted, linux, gpu]", Verdict::Moves, vec!["gpu"]),
        ("{group: big}", Verdict::Moves, vec!["runner-group"]),
        ("{group: big, labels: [ubuntu-x]}", Verdict::Moves, vec!["runner-group"]),
        ("{group: big, labels: windows-x}", Verdict::Stays, vec!["operating-system"]),
        ("ubuntu-${{ inputs.version }}", Verdict::Moves, vec![]),
        ("windows-${{ inputs.version }}", Verdict::Stays, vec!["operating-system"]),
        ("${{ inputs.runner }}", Verdict::Unknown, vec!["expression"]),
        ("${{ fromJSON(vars.RUNNER) }}", Verdict::Unknown, vec!["expression"]),
        ("${{ matrix.os }}", Verdict::Unknown, vec!["expression"]),
        ("[self-hosted, '${{ inputs.size }}']", Verdict::Unknown, vec!["expression"]),
        ("[linux, '${{ inputs.size }}']", Verdict::Moves, vec![]),
        ("${{ github.run_id }}", Verdict::Borrows, vec![]),
        ("${{github.run_id}}-gpu", Verdict::Borrows, vec![]),
        ("${{", Verdict::Unknown, vec!["expression"]),
    ] {
        let report = check(&format!("jobs:\n  a:\n    runs-on: {runs_on}\n"), &Class::assumed());
        let job = &report.jobs[0];
        assert_eq!(job.verdict, verdict, "{runs_on}");
        assert_eq!(job.findings.iter().map(|one| one.rule).collect::<Vec<_>>(), rules, "{runs_on}");
        let writes = matches!(verdict, Verdict::Moves | Verdict::Unknown);
        assert_eq!(job.write.as_deref(), writes.then_some(label), "{runs_on}");
    }
}

#[test]
fn an_arm_job_fits_an_arm_class_alone() {
    let arm = Class { arm: Some(true), ..Class::assumed() };
    let on = |label: &str| format!("jobs:\n  a:\n    runs-on: {label}\n");
    assert_eq!(found(&on("ubuntu-24.04-arm"), &arm), Vec::<String>::new());
    assert_eq!(found(&on("ubuntu-24.04"), &arm), ["fails architecture 3"]);
    assert_eq!(found(&on("self-hosted"), &arm), Vec::<String>::new());
    let unsaid = Class { arm: None, ..Class::assumed() };
    assert_eq!(found(&on("ubuntu-24.04-arm"), &unsaid), Vec::<String>::new());
}

#[test]
fn of_a_matrix_the_linux_part_moves() {
    let text = |values: &str| {
        format!(
            "jobs:\n  a:\n    strategy:\n      matrix:\n        os: {values}\n    runs-on: ${{{{ matrix.os }}}}\n"
        )
    };
    for (values, verdict, write) in [
        ("[ubuntu-24.04, ubuntu-22.04]", Verdict::Moves, Some("${{ needs.provision.outputs.label }}")),
        ("[windows-2022, macos-15]", Verdict::Stays, None),
        (
            "[ubuntu-24.04, windows-2022]",
            Verdict::MovesPartly,
            Some("${{ matrix.os == 'ubuntu-24.04' && needs.provision.outputs.label || matrix.os }}"),
        ),
        (
            "[ubuntu-24.04, macos-15, ubuntu-22.04]",
            Verdict::MovesPartly,
            Some(
                "${{ contains(fromJSON('[\"ubuntu-24.04\",\"ubuntu-22.04\"]'), matrix.os) && \
                 needs.provision.outputs.label || matrix.os }}",
            ),
        ),
        (
            "[ubuntu-24.04, ubuntu-24.04-arm]",
            Verdict::MovesPartly,
            Some("${{ matrix.os == 'ubuntu-24.04' && needs.provision.outputs.label || matrix.os }}"),
        ),
        ("${{ fromJSON(inputs.os) }}", Verdict::Unknown, Some("${{ needs.provision.outputs.label }}")),
    ] {
        let report = check(&text(values), &asked());
        assert_eq!((report.jobs[0].verdict, report.jobs[0].write.as_deref()), (verdict, write), "{values}");
    }
    let by_label = check(&text("[ubuntu-24.04, windows-2022]"), &Class::assumed());
    assert_eq!(
        by_label.jobs[0].write.as_deref(),
        Some("${{ matrix.os == 'ubuntu-24.04' && format('{0}-linux-x64', github.run_id) || matrix.os }}")
    );
    let parts = text("[ubuntu-24, windows-22]").replace("${{ matrix.os }}", "${{ matrix.os }}-big");
    assert_eq!(found(&parts, &Class::assumed()), ["fails operating-system 5", "note matrix 6"]);
    assert_eq!(
        found(&text("\n          - ubuntu-24.04\n          - macos-15"), &Class::assumed()),
        ["fails operating-system 7"]
    );
}

#[test]
fn jobs_that_call_or_ask_for_machines_stay() {
    let text = "
jobs:
  call:
    uses: ./.github/workflows/build.yml
  ask:
    runs-on: ubuntu-24.04
    steps:
      - run: sudo true
      - run: runyard provision --class small --count 1 --wait
  work:
    needs: ask
    runs-on: ${{ needs.ask.outputs.label }}
  other:
    runs-on: ${{ needs.pick.outputs.label }}
";
    let report = check(text, &Class::assumed());
    let verdicts: Vec<Verdict> = report.jobs.iter().map(|job| job.verdict).collect();
    assert_eq!(verdicts, [Verdict::Calls, Verdict::Stays, Verdict::Borrows, Verdict::Unknown]);
    assert_eq!(report.jobs[0].findings[0].rule, "reusable-workflow");
    assert!(report.jobs[0].findings[0].fix.contains("runyard check-workflow .github/workflows/build.yml"));
    assert!(!report.fails());
}

#[test]
fn what_needs_root_fails_unless_the_class_gives_it() {
    let text = job("    steps:
      - run: |
          # sudo in a comment
          echo sudo
          sudo apt-get update
          ./build && apt-get install -y x
      - run: npx playwright install --with-deps
      - uses: shivammathur/setup-php@v2
      - uses: nick-fields/retry@v3
        with: {command: sudo ./build}
      - if: runner.os == 'Windows'
        run: sudo true
");
    let expected = ["fails root 8", "fails root 9", "fails root 10", "fails root 11", "fails root 13"];
    assert_eq!(found(&text, &Class::assumed()), expected);
    assert_eq!(found(&text, &with(Containers::Nothing, true)), Vec::<String>::new());
    let inside = job("    container: debian:13\n    steps:\n      - run: apt-get update\n");
    assert_eq!(found(&inside, &Class::assumed()), ["fails containers 4"]);
    assert_eq!(found(&inside, &with(Containers::Rootless, false)), Vec::<String>::new());
}

#[test]
fn what_needs_docker_fails_by_what_the_class_gives() {
    let text = job("    container:
      image: debian:13
      options: --cpus 1 --privileged
    services:
      db: {image: postgres, options: --privileged}
    steps:
      - uses: docker://alpine:3
");
    let nothing = [
        "fails containers 4",
        "fails privileged 6",
        "fails containers 7",
        "fails privileged 8",
        "fails containers 10",
    ];
    assert_eq!(found(&text, &Class::assumed()), nothing);
    assert_eq!(
        found(&text, &with(Containers::Rootless, false)),
        ["fails privileged 6", "fails privileged 8"]
    );
    assert_eq!(found(&text, &with(Containers::Engine, true)), Vec::<String>::new());
    let steps = job("    steps:
      - run: docker build .
      - run: docker buildx build --push .
      - uses: docker/setup-buildx-action@v3
      - uses: docker/setup-qemu-action@v3
      - run: minikube start
");
    let rootless = ["fails buildx 6", "fails buildx 7", "fails privileged 8", "fails privileged 9"];
    assert_eq!(found(&steps, &with(Containers::Rootless, false)), rootless);
    assert_eq!(found(&steps, &with(Containers::Engine, true)), Vec::<String>::new());
    assert_eq!(found(&steps, &Class::assumed()).len(), 6);
}

#[test]
fn setup_actions_are_told_by_what_they_need_of_the_image() {
    let text = job("    steps:
      - uses: actions/checkout@v7
      - uses: actions/setup-node@v6
      - uses: actions/setup-java@v5
      - uses: actions/setup-go@v6
      - uses: actions/setup-python@v6
      - uses: ruby/setup-ruby@v1
      - uses: actions/setup-dotnet@v5
      - uses: ./.github/actions/own
      - run: gh pr list
      - run: gh pr view
      - shell: pwsh
        run: x
      - run: curl http://169.254.169.254/latest
");
    let expected = [
        "image tool-cache 9",
        "image tool-cache 10",
        "fails variable 11",
        "note local-action 12",
        "image image-tool 13",
        "image image-tool 15",
        "fails machine-role 17",
    ];
    assert_eq!(found(&text, &Class::assumed()), expected);
    let keeps = Class { keeps: vec!["/opt/hostedtoolcache".into()], ..Class::assumed() };
    let set =
        text.replace("@v5\n      - uses: ./", "@v5\n        env: {DOTNET_INSTALL_DIR: x}\n      - uses: ./");
    assert!(!found(&set, &keeps).iter().any(|one| one.contains("tool-cache") || one.contains("variable")));
}

#[test]
fn a_job_that_may_take_longer_than_machines_are_lent_is_noted() {
    assert_eq!(found(&job("    timeout-minutes: 120\n"), &Class::assumed()), ["note max-runtime 4"]);
    for fine in ["90", "${{ inputs.minutes }}", "1.5", "-1"] {
        assert_eq!(
            found(&job(&format!("    timeout-minutes: {fine}\n")), &Class::assumed()),
            Vec::<String>::new()
        );
    }
}

#[test]
fn marks_and_line_ends_of_other_editors_change_no_line() {
    let text =
        "\u{feff}".to_owned() + &job("    steps:\n      - run: |\n          sudo x\n").replace('\n', "\r\n");
    assert_eq!(found(&text, &Class::assumed()), ["fails root 6"]);
    let shared = "jobs:\n  a: &a\n    runs-on: ubuntu-latest\n    steps:\n      - run: sudo x\n  b: *a\n";
    let report = check(shared, &Class::assumed());
    assert_eq!((report.jobs.len(), report.jobs[1].findings[0].line), (2, 5));
}

#[test]
fn a_file_that_is_no_text_of_a_workflow_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        path
    };
    let long = vec![b'#'; 10 << 20];
    for (path, words) in [
        (folder.path().to_owned(), "is a directory"),
        (folder.path().join("*.yml"), "is a pattern"),
        (folder.path().join("none.yml"), "No such file"),
        (file("long.yml", &long), "is longer than"),
        (file("latin.yml", b"a: \xe9\n"), "not UTF-8"),
        (file("empty.yml", b""), "no YAML document"),
        (file("tab.yml", b"jobs:\n\ta: 1\n"), "tab"),
    ] {
        let refused = checked(&path, &Class::assumed()).err().unwrap();
        assert!(refused.message.contains(words), "{refused:?}");
        assert!(!refused.fix.is_empty() && !refused.field.is_empty());
    }
    let tab = checked(&folder.path().join("tab.yml"), &Class::assumed()).err().unwrap();
    assert!(tab.field.ends_with("tab.yml:2"), "{tab:?}");
}

#[test]
fn what_is_said_has_file_line_and_fix_and_the_document_the_same() {
    let report = check(&job("    steps:\n      - run: sudo x\n"), &Class::assumed());
    let lines = told::findings(&report);
    assert!(
        lines[0].starts_with("test.yml:5: fails: job a: `sudo`: no job of the class becomes root\n  fix: ")
    );
    assert_eq!(told::rows(&report), [["a", "2", "ubuntu-latest", "runs-on: ${{ github.run_id }}-linux-x64"]]);
    let document = told::document(&report, &Class::assumed());
    assert_eq!(document["fails"], true);
    assert_eq!(document["jobs"][0]["findings"][0]["line"], 5);
    let summary = told::summary(&[report], &Class { secret_label: true, ..asked() }, false);
    assert_eq!(summary[0], "1 jobs, 1 to move; 1 would not work, 0 depend on the image, 0 notes");
    assert_eq!(summary.len(), 3);
}

#[test]
fn the_other_changes_are_told_where_the_label_alone_is_not_enough() {
    let last = |class: &Class, assumed: bool| {
        let report = check(&job(""), class);
        told::summary(&[report], class, assumed).pop().unwrap()
    };
    let serves = "Nothing else changes: class linux-x64 has `queue: {runLabels: true}`.";
    assert_eq!(last(&Class::assumed(), false), serves);
    assert!(last(&Class::assumed(), true).starts_with("Nothing else changes where the class has `queue:"));
    assert!(last(&asked(), false).contains("docs/workflows.md"));
    let spec = serde_json::json!({"resourceClass": "small", "queue": {"runLabels": true}});
    assert!(Class::of(&serde_json::from_value(spec).unwrap()).run_labels);
}

#[test]
fn no_cut_and_no_changed_character_of_a_workflow_is_a_panic() {
    let text = "jobs:\n  é: &a\n    runs-on: [x, '${{ matrix.o }}']\n    container: {image: d}\n    strategy:\n      \
                matrix: {o: [u, w]}\n    steps:\n      - run: |\n\n          sudo x\n      - {uses: a/b@c}\n  b: *a\n";
    let judged = |text: &str| report("x.yml", text, &Class::assumed()).map(|report| told::findings(&report));
    assert!(judged(text).is_ok());
    for (at, char) in text.char_indices() {
        let (before, after) = (&text[..at], &text[at + char.len_utf8()..]);
        for changed in
            ["", "{", "[", "]", ":", "&", "*", "|", "-", "'", "\t", "\n", "#", "$", "\u{0}", "\u{feff}"]
        {
            let _ = judged(&format!("{before}{changed}{after}"));
        }
        let _ = judged(before);
    }
}

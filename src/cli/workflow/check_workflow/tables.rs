//! The needs of commands, script phrases and actions. `docs/migrate.md` has the reasons.

use std::sync::LazyLock;

use super::class::Class;
use super::findings::Level;
use runyard_core::model::Containers;

/// The directory for which some actions' downloads were built.
const TOOL_CACHE: &str = "/opt/hostedtoolcache";

/// A requirement of a command or an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Root permissions.
    Root,
    /// A container engine.
    Containers,
    /// Docker's own build features, which podman lacks.
    Buildx,
    /// Containers with privileges on the machine.
    Privileged,
    /// A tool of GitHub's image that these packages bring.
    Image(&'static str),
    /// A tool of GitHub's image that no package brings.
    Absent,
    /// A tool of GitHub's image that this action installs in the job's own directories.
    Job(&'static str),
    /// GitHub's builds, made for Ubuntu and for one directory.
    ToolCache,
    /// The machine's own address.
    Machine,
    /// A variable that GitHub's image sets, or without which the tool writes outside the job's directories.
    Variable(&'static str),
}

impl Need {
    /// Returns the rule's name, for programs.
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Containers => "containers",
            Self::Buildx => "buildx",
            Self::Privileged => "privileged",
            Self::Image(_) | Self::Absent | Self::Job(_) => "image-tool",
            Self::ToolCache => "tool-cache",
            Self::Machine => "machine-role",
            Self::Variable(_) => "variable",
        }
    }

    /// Returns the severity on a class; `None` if the class meets the need. `source` is the whole workflow.
    pub(super) fn level(self, class: &Class, source: &str) -> Option<Level> {
        let has = match self {
            Self::Root => class.root,
            Self::Containers => class.containers != Containers::Nothing,
            Self::Buildx | Self::Privileged => class.containers == Containers::Engine,
            Self::ToolCache => class.keeps.iter().any(|path| path == TOOL_CACHE),
            Self::Variable(name) | Self::Job(name) => source.contains(name),
            Self::Image(_) | Self::Absent | Self::Machine => false,
        };
        match self {
            _ if has => None,
            Self::Image(_) | Self::Absent | Self::Job(_) | Self::ToolCache => Some(Level::Image),
            Self::Root
            | Self::Containers
            | Self::Buildx
            | Self::Privileged
            | Self::Machine
            | Self::Variable(_) => Some(Level::Fails),
        }
    }

    /// Returns why it does not work.
    pub(super) fn why(self, class: &Class) -> String {
        match self {
            Self::Root => "no job of the class becomes root".into(),
            Self::Containers => "jobs of the class have no container engine".into(),
            Self::Buildx | Self::Privileged if class.containers == Containers::Nothing => {
                "jobs of the class have no container engine".into()
            }
            Self::Buildx => "rootless containers have podman's build, not Docker's buildx".into(),
            Self::Privileged => "rootless containers have no rights on the machine".into(),
            Self::Image(_) | Self::Absent | Self::Job(_) => {
                "GitHub's image has this tool; the class's image must have it too".into()
            }
            Self::ToolCache => {
                format!(
                    "installs builds that were made for Ubuntu and for {TOOL_CACHE}, which jobs cannot write"
                )
            }
            Self::Machine => "the metadata service answers no job".into(),
            Self::Variable(name) => format!("needs {name} where the machine is not GitHub's"),
        }
    }

    /// Returns the fix.
    pub(super) fn fix(self) -> String {
        match self {
            Self::Root => {
                "put it into the machine image or `launch.preRunnerScript`, or ask for a class with `jobs: {root: true}`".into()
            }
            Self::Containers => "ask for a class with `jobs: {containers: rootless}`".into(),
            Self::Buildx => {
                "use `docker build` and `docker push`, or ask for a class with `jobs: {containers: engine}`".into()
            }
            Self::Privileged => "ask for a class with `jobs: {containers: engine}`".into(),
            Self::Image(packages) => format!(
                "make the machine image with config/packer's `tools`, which brings it (package {packages}), or install it \
                 in the job's own directories"
            ),
            Self::Absent => "put it into the machine image, or install it in the job's own directories".into(),
            Self::Job(action) => format!("use {action}, which installs it in the job's own directories"),
            Self::ToolCache => {
                format!("use an image of Ubuntu 22.04 or 24.04 that has the versions in {TOOL_CACHE}, or `keep` this directory")
            }
            Self::Machine => "use aws-actions/configure-aws-credentials with the workflow's own identity".into(),
            Self::Variable("ImageOS") => "write `env: {ImageOS: ubuntu24}`, by the system of the image".into(),
            Self::Variable("DOTNET_INSTALL_DIR") => {
                "write `env: {DOTNET_INSTALL_DIR: ./.dotnet}`; without it the action writes to /usr/share/dotnet".into()
            }
            Self::Variable(name) => format!("set {name} in the job's `env`"),
        }
    }
}

/// Commands and actions with their needs: the file that the recipe of machine images reads too.
const LIST: &str = include_str!("../../../../config/packer/tools");

static LISTED: LazyLock<Vec<(&'static str, Need)>> = LazyLock::new(|| {
    LIST.lines().filter_map(listed).map(|entry| entry.expect("the list that ships is whole")).collect()
});

/// Reads a line of the list; `None` if it is a comment or empty.
fn listed(line: &'static str) -> Option<Result<(&'static str, Need), &'static str>> {
    let (name, after) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if name.is_empty() || name.starts_with('#') {
        return None;
    }
    let after = after.trim();
    let (need, rest) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
    let rest = rest.trim();
    let need = match (need, rest.is_empty()) {
        ("root", true) => Need::Root,
        ("containers", true) => Need::Containers,
        ("buildx", true) => Need::Buildx,
        ("privileged", true) => Need::Privileged,
        ("tool-cache", true) => Need::ToolCache,
        ("absent", true) => Need::Absent,
        ("image", false) => Need::Image(rest),
        ("job", false) => Need::Job(rest),
        ("variable", false) => Need::Variable(rest),
        _ => return Some(Err(line)),
    };
    Some(Ok((name, need)))
}

/// Phrases in a line of a script; all words must occur.
const PHRASES: &[(Need, &[&str])] = &[
    (Need::Root, &["playwright install", "--with-deps"]),
    (Need::Root, &["playwright install-deps"]),
    (Need::Buildx, &["docker buildx create"]),
    (Need::Buildx, &["docker buildx", "--push"]),
    (Need::Buildx, &["docker buildx", "--cache-to"]),
    (Need::Privileged, &["docker", "--privileged"]),
    (Need::Containers, &["/var/run/docker.sock"]),
    (Need::Machine, &["169.254.169.254"]),
    (Need::ToolCache, &[TOOL_CACHE]),
];

/// Returns the need of a command.
pub(super) fn of_command(name: &str) -> Option<Need> {
    LISTED.iter().find(|(listed, _)| *listed == name).map(|(_, need)| *need)
}

/// Returns the needs of the phrases in a line of a script, with the matching words.
pub(super) fn of_line(line: &str) -> impl Iterator<Item = (Need, String)> {
    let holds = PHRASES.iter().filter(move |(_, words)| words.iter().all(|word| line.contains(word)));
    holds.map(|(need, words)| (*need, words.join(" … ")))
}

/// Returns the need of an action; `uses` is the value in the step.
pub(super) fn of_action(uses: &str) -> Option<Need> {
    let name = uses.split('@').next().unwrap_or_default().to_ascii_lowercase();
    let named =
        |known: &str| name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    LISTED.iter().find(|(listed, _)| listed.contains('/') && named(listed)).map(|(_, need)| *need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_in_the_list_in_lower_case_and_with_a_known_need() {
        let entries: Vec<_> = LIST.lines().filter_map(listed).collect();
        assert!(entries.iter().all(Result::is_ok), "{entries:?}");
        let mut names: Vec<&str> = LISTED.iter().map(|(name, _)| *name).collect();
        assert!(names.len() > 80 && names.iter().all(|name| *name == name.to_ascii_lowercase()));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for broken in ["gh", "gh image", "sudo root now", "gh magic gh"] {
            assert!(listed(broken).is_some_and(|entry| entry.is_err()), "{broken}");
        }
    }

    #[test]
    fn a_tool_is_told_by_where_it_can_come_from() {
        let class = Class::assumed();
        for (command, fix) in
            [("gh", "package gh"), ("brew", "put it into"), ("helm", "use azure/setup-helm")]
        {
            let need = of_command(command).unwrap();
            assert_eq!(need.level(&class, "run: it"), Some(Level::Image));
            assert!(need.fix().contains(fix), "{command}: {}", need.fix());
        }
        let brought = "uses: azure/setup-helm@v4";
        assert_eq!(of_command("helm").unwrap().level(&class, brought), None, "the job brings it");
    }

    #[test]
    fn an_action_is_known_by_its_repository_whatever_its_case_version_and_path() {
        assert_eq!(of_action("Ruby/Setup-Ruby@v1"), Some(Need::ToolCache));
        assert_eq!(of_action("snyk/actions/node@master"), Some(Need::Containers));
        assert_eq!(of_action("r-lib/actions/setup-r@v2"), Some(Need::Root));
        for fine in [
            "actions/setup-node@v6",
            "actions/checkout@v7",
            "r-lib/actions/setup-pandoc@v2",
            "docker/metadata-action@v5",
        ] {
            assert_eq!(of_action(fine), None, "{fine}");
        }
    }
}

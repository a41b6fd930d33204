//! The tables of commands, script phrases and actions, with the needs of each. `docs/migrate.md` has the reasons.

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
    /// A tool of GitHub's image.
    Image,
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
            Self::Image => "image-tool",
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
            Self::Variable(name) => source.contains(name),
            Self::Image | Self::Machine => false,
        };
        match self {
            _ if has => None,
            Self::Image | Self::ToolCache => Some(Level::Image),
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
            Self::Image => "GitHub's image has this tool; the class's image must have it too".into(),
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
            Self::Image => "put it into the machine image, or install it in the job's own directories".into(),
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

/// Commands by their need.
const COMMANDS: &[(Need, &[&str])] = &[
    (
        Need::Root,
        &[
            "sudo",
            "apt-get",
            "apt",
            "dnf",
            "yum",
            "zypper",
            "apk",
            "snap",
            "systemctl",
            "service",
            "mount",
            "modprobe",
            "update-alternatives",
        ],
    ),
    (
        Need::Containers,
        &[
            "docker",
            "docker-compose",
            "podman",
            "buildah",
            "act",
            "earthly",
            "dagger",
            "cross",
            "cibuildwheel",
        ],
    ),
    (Need::Privileged, &["kind", "minikube", "k3d"]),
    (
        Need::Image,
        &[
            "az",
            "brew",
            "conda",
            "gcloud",
            "gh",
            "google-chrome",
            "helm",
            "kubectl",
            "pwsh",
            "terraform",
            "vcpkg",
            "xvfb-run",
        ],
    ),
];

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

/// Actions by their need, `OWNER/NAME` or a path below it, in lower case. Other actions need nothing that a job lacks,
/// as far as is known: actions/checkout, cache, setup-node, setup-go and setup-java download what they need into the
/// runner's own cache.
const ACTIONS: &[(Need, &[&str])] = &[
    (
        Need::Root,
        &[
            "ankane/setup-postgres",
            "awalsh128/cache-apt-pkgs-action",
            "cachix/install-nix-action",
            "canonical/setup-lxd",
            "determinatesystems/determinate-nix-action",
            "determinatesystems/nix-installer-action",
            "docker/setup-docker-action",
            "easimon/maximize-build-space",
            "homebrew/actions/setup-homebrew",
            "jlumbroso/free-disk-space",
            "r-lib/actions/setup-r",
            "r-lib/actions/setup-r-dependencies",
            "ros-tooling/setup-ros",
            "rui314/setup-mold",
            "shivammathur/setup-php",
            "snapcore/action-build",
            "tailscale/github-action",
        ],
    ),
    (
        Need::Containers,
        &[
            "actions/jekyll-build-pages",
            "addnab/docker-run-action",
            "devcontainers/ci",
            "docker/login-action",
            "github/super-linter",
            "hadolint/hadolint-action",
            "hoverkraft-tech/compose-action",
            "oxsecurity/megalinter",
            "pyo3/maturin-action",
            "pypa/cibuildwheel",
            "pypa/gh-action-pypi-publish",
            "snyk/actions",
            "super-linter/super-linter",
            "supercharge/mongodb-github-action",
            "supercharge/redis-github-action",
            "trufflesecurity/trufflehog",
        ],
    ),
    (Need::Buildx, &["docker/bake-action", "docker/build-push-action", "docker/setup-buildx-action"]),
    (
        Need::Privileged,
        &[
            "docker/setup-qemu-action",
            "engineerd/setup-kind",
            "helm/kind-action",
            "manusa/actions-setup-minikube",
            "medyagh/setup-minikube",
            "uraimo/run-on-arch-action",
        ],
    ),
    (Need::ToolCache, &["actions/setup-python", "ruby/setup-ruby"]),
    (Need::Variable("DOTNET_INSTALL_DIR"), &["actions/setup-dotnet"]),
    (Need::Variable("ImageOS"), &["erlef/setup-beam"]),
    (Need::Image, &["browser-actions/setup-chrome", "cypress-io/github-action"]),
];

/// Returns the need of a command.
pub(super) fn of_command(name: &str) -> Option<Need> {
    COMMANDS.iter().find(|(_, names)| names.contains(&name)).map(|(need, _)| *need)
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
        |known: &&str| name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ACTIONS.iter().find(|(_, names)| names.iter().any(named)).map(|(need, _)| *need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_in_its_table_in_lower_case() {
        for table in [COMMANDS, ACTIONS] {
            let mut names: Vec<&str> = table.iter().flat_map(|(_, names)| names.iter().copied()).collect();
            assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
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

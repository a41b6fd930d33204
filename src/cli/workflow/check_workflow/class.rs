//! The class that a workflow is checked against.

use runyard_core::model::{Containers, LabelMode, PoolSpec};

/// The properties of a class that matter to jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// Its name.
    pub(super) name: String,
    /// Whether its machines are ARM; `None` if its launch template decides.
    pub(super) arm: Option<bool>,
    /// Whether jobs become root.
    pub(super) root: bool,
    /// The container engine of jobs.
    pub(super) containers: Containers,
    /// Its labels beside the run's.
    pub(super) labels: Vec<String>,
    /// Whether a request must ask for a secret label.
    pub(super) secret_label: bool,
    /// Whether jobs get machines by their label alone.
    pub(super) run_labels: bool,
    /// The directories that it keeps from run to run.
    pub(super) keeps: Vec<String>,
    /// The longest runtime of its machines.
    pub(super) max_minutes: Option<u64>,
}

impl Class {
    /// Returns the first class of `config/pools.yaml`, for people who have none yet.
    pub(super) fn assumed() -> Self {
        Self {
            name: "linux-x64".into(),
            arm: Some(false),
            root: false,
            containers: Containers::Nothing,
            labels: Vec::new(),
            secret_label: false,
            run_labels: true,
            keeps: Vec::new(),
            max_minutes: Some(90),
        }
    }

    /// Returns the properties of a class from a file.
    pub(super) fn of(spec: &PoolSpec) -> Self {
        Self {
            name: spec.resource_class.to_string(),
            arm: spec.launch.architecture.as_deref().map(|name| name == "arm64"),
            root: spec.jobs.root,
            containers: spec.jobs.containers,
            labels: spec.labels.clone(),
            secret_label: spec.label_mode == LabelMode::Secret,
            run_labels: spec.serves_labels().is_some(),
            keeps: spec.keep.iter().map(|keep| keep.path.clone()).collect(),
            max_minutes: spec.max_runtime_minutes,
        }
    }

    /// Describes the class in words.
    pub(super) fn told(&self) -> String {
        let architecture = match self.arm {
            Some(true) => "arm64",
            Some(false) => "x86_64",
            None => "the architecture of its template",
        };
        let root = if self.root { "root" } else { "no root" };
        let containers = match self.containers {
            Containers::Nothing => "no containers",
            Containers::Rootless => "rootless containers",
            Containers::Engine => "the machine's Docker",
        };
        format!("class {}: {architecture}, {root}, {containers}", self.name)
    }
}

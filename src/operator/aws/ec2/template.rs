//! Keeps launch templates equal to the specs of their classes. Each class has one, `<table>-<class>`, whose default
//! version is updated; or it names a template of its owner's, which is checked and never changed.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{
    LaunchTemplate, LaunchTemplateVersion, ResourceType, ResponseLaunchTemplateData, TagSpecification,
};

use super::errors::{CallError, Meaning};
use super::machine::{CLASS, TABLE, tagged};
use super::template_diff::differences;
use super::template_spec::TemplateSpec;
use super::{Ec2Options, observed_template};
use crate::model::{ClassName, FieldError, PoolSpec};
use crate::ports::ComputeError;
use crate::store::Difference;

/// What a class is launched from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Template {
    /// Ours, kept equal to the class.
    Managed {
        /// Its name.
        name: String,
    },
    /// Somebody's, judged.
    Provided {
        /// Its id.
        id: String,
        /// Whether it says itself which types will do.
        sized: bool,
    },
}

/// What keeping a class's template equal to its spec takes, or took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateChange {
    /// Nothing: it says what the class says.
    None,
    /// There is none yet.
    Create,
    /// Its default version says something else.
    Update,
    /// The class names a template of its own, which is good.
    Provided,
}

/// A class's template beside its spec.
enum TemplateDiff {
    /// It says what the spec says.
    Equal(Template),
    /// It is its owner's, and good.
    Provided(Template),
    /// There is none.
    Missing(TemplateSpec),
    /// It says something else: what its default version holds.
    Different(TemplateSpec, Option<Box<ResponseLaunchTemplateData>>),
}

/// The templates of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Templates<'a> {
    pub(super) client: &'a Client,
    pub(super) options: &'a Ec2Options,
}

impl Templates<'_> {
    /// Whether a class's machines would find a runner: from a template of ours they learn of it by the operator's own
    /// settings alone, and our agent ends its machine at first boot when it knows of none. Launches go on all the same:
    /// somebody else's agent may need none, and a class whose machines come to nothing is held back.
    pub(super) fn check_runner_package(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
        if self.options.runner.is_some() || spec.launch.launch_template_id.is_some() {
            return Ok(());
        }
        let message = format!("missing, and machines of class {} would find no runner", spec.resource_class);
        let fix = "set agent.runner_url, agent.runner_sha256 and agent.runner_version of the operator, or give the \
                   class a launchTemplateId whose user data tells the agent of a runner";
        Err(refused(&FieldError::new("agent.runner_url", "", message, fix)))
    }

    /// What there is to do about a class's template, field by field; nothing is done.
    pub(super) async fn examine(
        &self,
        spec: &PoolSpec,
    ) -> Result<(TemplateChange, Vec<Difference>), ComputeError> {
        Ok(match self.compare(spec).await? {
            TemplateDiff::Equal(_) => (TemplateChange::None, Vec::new()),
            TemplateDiff::Provided(_) => (TemplateChange::Provided, Vec::new()),
            TemplateDiff::Missing(wanted) => (TemplateChange::Create, differences(&wanted.data(), None)),
            TemplateDiff::Different(wanted, data) => {
                (TemplateChange::Update, differences(&wanted.data(), data.as_deref()))
            }
        })
    }

    /// What a class is launched from as things are, changed or not; none while there is no template.
    pub(super) async fn existing(&self, spec: &PoolSpec) -> Result<Option<Template>, ComputeError> {
        Ok(match self.compare(spec).await? {
            TemplateDiff::Equal(template) | TemplateDiff::Provided(template) => Some(template),
            TemplateDiff::Missing(_) => None,
            TemplateDiff::Different(wanted, _) => Some(Template::Managed { name: wanted.name() }),
        })
    }

    /// Makes a class's template say what the class says.
    pub(super) async fn ensure(&self, spec: &PoolSpec) -> Result<(Template, TemplateChange), ComputeError> {
        Ok(match self.compare(spec).await? {
            TemplateDiff::Equal(template) => (template, TemplateChange::None),
            TemplateDiff::Provided(template) => (template, TemplateChange::Provided),
            TemplateDiff::Missing(wanted) => {
                self.create(&wanted).await?;
                (Template::Managed { name: wanted.name() }, TemplateChange::Create)
            }
            TemplateDiff::Different(wanted, _) => {
                self.update(&wanted).await?;
                (Template::Managed { name: wanted.name() }, TemplateChange::Update)
            }
        })
    }

    async fn compare(&self, spec: &PoolSpec) -> Result<TemplateDiff, ComputeError> {
        if let Some(id) = &spec.launch.launch_template_id {
            return self.judge(id).await.map(TemplateDiff::Provided);
        }
        let wanted = self.template_spec(spec).await?;
        Ok(match self.ours(&wanted.name(), &spec.resource_class).await? {
            None => TemplateDiff::Missing(wanted),
            Some(template) => {
                let id = template.launch_template_id().unwrap_or_default();
                match self.default_version(id).await? {
                    Some(version) if matches_spec(&version, &wanted) => {
                        TemplateDiff::Equal(Template::Managed { name: wanted.name() })
                    }
                    version => TemplateDiff::Different(
                        wanted,
                        version.and_then(|version| version.launch_template_data).map(Box::new),
                    ),
                }
            }
        })
    }

    async fn template_spec(&self, spec: &PoolSpec) -> Result<TemplateSpec, ComputeError> {
        let launch = &spec.launch;
        let Some(ami) = launch.ami.clone() else {
            let fix = "name the image to launch from, or a launchTemplateId";
            return Err(refused(&FieldError::new("launch.ami", "", "missing", fix)));
        };
        let root = match launch.volume_gib {
            Some(gib) => Some((self.root_device(&ami).await?, gib)),
            None => None,
        };
        TemplateSpec::of(self.options, spec, &ami, root).map_err(|error| refused(&error))
    }

    /// The name of an image's root device; a volume of another name would be a second one.
    async fn root_device(&self, ami: &str) -> Result<String, ComputeError> {
        let told = self.client.describe_images().image_ids(ami).send().await.map_err(|e| call(&e))?;
        let device = told.images.unwrap_or_default().into_iter().find_map(|image| image.root_device_name);
        device.ok_or_else(|| {
            let fix = "name an image this account may use, or leave launch.volumeGiB out";
            refused(&FieldError::new("launch.ami", ami, "has no root device that is known", fix))
        })
    }

    /// The template of this name, if there is one and it is ours.
    async fn ours(&self, name: &str, class: &ClassName) -> Result<Option<LaunchTemplate>, ComputeError> {
        let told = self.client.describe_launch_templates().launch_template_names(name).send().await;
        let found = match told {
            Ok(told) => told.launch_templates.unwrap_or_default().into_iter().next(),
            Err(error) => match CallError::of(&error) {
                CallError { meaning: Meaning::NoSuchTemplate, .. } => None,
                error => return Err(error.into()),
            },
        };
        let Some(template) = found else { return Ok(None) };
        let said = |key| tagged(template.tags.as_ref(), key);
        if (said(TABLE), said(CLASS)) == (Some(self.options.table.as_str()), Some(class.as_str())) {
            return Ok(Some(template));
        }
        Err(ComputeError::Refused(format!(
            "the launch template {name} is not this class's (its tags {TABLE} and {CLASS} say otherwise): \
             rename the class or the table, or remove that template"
        )))
    }

    async fn default_version(&self, id: &str) -> Result<Option<LaunchTemplateVersion>, CallError> {
        let asked = self.client.describe_launch_template_versions().launch_template_id(id);
        let told = asked.versions("$Default").send().await.map_err(|error| CallError::of(&error))?;
        Ok(told.launch_template_versions.unwrap_or_default().into_iter().next())
    }

    async fn create(&self, wanted: &TemplateSpec) -> Result<(), ComputeError> {
        let on = TagSpecification::builder().resource_type(ResourceType::LaunchTemplate);
        let tags = on.set_tags(Some(wanted.class_tags())).build();
        let made = self.client.create_launch_template();
        let made = made
            .launch_template_name(wanted.name())
            .version_description(wanted.description())
            .launch_template_data(wanted.data())
            .tag_specifications(tags);
        match made.send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(CallError::of(&error).into()),
        }
    }

    /// Makes a version that says the wanted the default one: an earlier one if there is, so that two operators of
    /// different minds, as during an update, do not make versions without end.
    async fn update(&self, wanted: &TemplateSpec) -> Result<(), ComputeError> {
        let name = wanted.name();
        let number = match self.version_matching(&name, wanted).await? {
            Some(number) => number,
            None => self.new_version(&name, wanted).await?,
        };
        let set = self.client.modify_launch_template().launch_template_name(&name);
        set.default_version(number.to_string()).send().await.map(|_| ()).map_err(|e| call(&e))
    }

    async fn version_matching(&self, name: &str, wanted: &TemplateSpec) -> Result<Option<i64>, ComputeError> {
        let asked = self.client.describe_launch_template_versions().launch_template_name(name);
        let mut pages = asked.into_paginator().send();
        while let Some(page) = pages.next().await {
            let versions = page.map_err(|e| call(&e))?.launch_template_versions.unwrap_or_default();
            let found = versions.iter().find(|v| matches_spec(v, wanted));
            if let Some(number) = found.and_then(|version| version.version_number()) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    async fn new_version(&self, name: &str, wanted: &TemplateSpec) -> Result<i64, ComputeError> {
        let made = self.client.create_launch_template_version().launch_template_name(name);
        let made = made.version_description(wanted.description()).launch_template_data(wanted.data());
        let made = made.send().await.map_err(|e| call(&e))?;
        let number = made.launch_template_version().and_then(|version| version.version_number());
        number.ok_or_else(|| ComputeError::Unknown(format!("no number was given for a version of {name}")))
    }

    /// Reads a given template and refuses one that would let a machine outlive its end or give its role away.
    async fn judge(&self, id: &str) -> Result<Template, ComputeError> {
        let missing = || {
            let fix = "name a template of this account and region";
            refused(&FieldError::new("launch.launchTemplateId", id, "is not there", fix))
        };
        let version = match self.default_version(id).await {
            Err(error) if error.meaning == Meaning::NoSuchTemplate => return Err(missing()),
            told => told?,
        };
        let data = version.and_then(|version| version.launch_template_data).ok_or_else(missing)?;
        match observed_template::problem(&data) {
            Some(problem) => Err(refused(&FieldError::new(
                "launch.launchTemplateId",
                id,
                format!("{} is {}", problem.setting, problem.value),
                problem.fix,
            ))),
            None => Ok(Template::Provided { id: id.to_owned(), sized: observed_template::sized(&data) }),
        }
    }
}

/// Whether a version is what we wrote for this wanted. Its description is what we go by, and whoever copies that does not
/// get machines that outlive their end or give their role away.
fn matches_spec(version: &LaunchTemplateVersion, wanted: &TemplateSpec) -> bool {
    version.version_description() == Some(wanted.description().as_str())
        && version.launch_template_data().is_some_and(|data| observed_template::problem(data).is_none())
}

fn call<E>(error: &aws_sdk_ec2::error::SdkError<E, aws_sdk_ec2::config::http::HttpResponse>) -> ComputeError
where
    E: std::error::Error + aws_sdk_ec2::error::ProvideErrorMetadata + 'static,
{
    CallError::of(error).into()
}

fn refused(error: &FieldError) -> ComputeError {
    ComputeError::Refused(error.to_string())
}

//! Is a class's launch template what its spec says? Each class has one, `<table>-<class>`, whose default version is kept
//! equal to the spec; or it names one of its owner's, which is judged and never changed.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{
    LaunchTemplate, LaunchTemplateVersion, ResourceType, ResponseLaunchTemplateData, TagSpecification,
};

use super::compared::differences;
use super::errors::{CallError, Meaning};
use super::machine::{CLASS, TABLE, tagged};
use super::wish::Wish;
use super::{Ec2Options, given};
use crate::model::{ClassName, FieldError, PoolSpec};
use crate::ports::ComputeError;
use crate::store::Difference;

/// What a class is launched from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Template {
    /// Ours, kept equal to the class.
    Kept {
        /// Its name.
        name: String,
    },
    /// Somebody's, judged.
    Given {
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
    Given,
}

/// A class's template beside its spec.
enum Compared {
    /// It says what the spec says.
    Equal(Template),
    /// It is its owner's, and good.
    Given(Template),
    /// There is none.
    Missing(Wish),
    /// It says something else: what its default version holds.
    Different(Wish, Option<Box<ResponseLaunchTemplateData>>),
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
    pub(super) fn equipped(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
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
            Compared::Equal(_) => (TemplateChange::None, Vec::new()),
            Compared::Given(_) => (TemplateChange::Given, Vec::new()),
            Compared::Missing(wish) => (TemplateChange::Create, differences(&wish.data(), None)),
            Compared::Different(wish, data) => {
                (TemplateChange::Update, differences(&wish.data(), data.as_deref()))
            }
        })
    }

    /// Makes a class's template say what the class says.
    pub(super) async fn ensure(&self, spec: &PoolSpec) -> Result<(Template, TemplateChange), ComputeError> {
        Ok(match self.compare(spec).await? {
            Compared::Equal(template) => (template, TemplateChange::None),
            Compared::Given(template) => (template, TemplateChange::Given),
            Compared::Missing(wish) => {
                self.create(&wish).await?;
                (Template::Kept { name: wish.name() }, TemplateChange::Create)
            }
            Compared::Different(wish, _) => {
                self.update(&wish).await?;
                (Template::Kept { name: wish.name() }, TemplateChange::Update)
            }
        })
    }

    async fn compare(&self, spec: &PoolSpec) -> Result<Compared, ComputeError> {
        if let Some(id) = &spec.launch.launch_template_id {
            return self.judge(id).await.map(Compared::Given);
        }
        let wish = self.wish(spec).await?;
        Ok(match self.ours(&wish.name(), &spec.resource_class).await? {
            None => Compared::Missing(wish),
            Some(template) => {
                let id = template.launch_template_id().unwrap_or_default();
                match self.default_version(id).await? {
                    Some(version) if says(&version, &wish) => {
                        Compared::Equal(Template::Kept { name: wish.name() })
                    }
                    version => Compared::Different(
                        wish,
                        version.and_then(|version| version.launch_template_data).map(Box::new),
                    ),
                }
            }
        })
    }

    async fn wish(&self, spec: &PoolSpec) -> Result<Wish, ComputeError> {
        let launch = &spec.launch;
        let Some(ami) = launch.ami.clone() else {
            let fix = "name the image to launch from, or a launchTemplateId";
            return Err(refused(&FieldError::new("launch.ami", "", "missing", fix)));
        };
        let root = match launch.volume_gib {
            Some(gib) => Some((self.root_device(&ami).await?, gib)),
            None => None,
        };
        Wish::of(self.options, spec, &ami, root).map_err(|error| refused(&error))
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

    async fn create(&self, wish: &Wish) -> Result<(), ComputeError> {
        let on = TagSpecification::builder().resource_type(ResourceType::LaunchTemplate);
        let tags = on.set_tags(Some(wish.marks())).build();
        let made = self.client.create_launch_template();
        let made = made
            .launch_template_name(wish.name())
            .version_description(wish.description())
            .launch_template_data(wish.data())
            .tag_specifications(tags);
        match made.send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(CallError::of(&error).into()),
        }
    }

    /// Makes a version that says the wish the default one: an earlier one if there is, so that two operators of
    /// different minds, as during an update, do not make versions without end.
    async fn update(&self, wish: &Wish) -> Result<(), ComputeError> {
        let name = wish.name();
        let number = match self.version_saying(&name, wish).await? {
            Some(number) => number,
            None => self.new_version(&name, wish).await?,
        };
        let set = self.client.modify_launch_template().launch_template_name(&name);
        set.default_version(number.to_string()).send().await.map(|_| ()).map_err(|e| call(&e))
    }

    async fn version_saying(&self, name: &str, wish: &Wish) -> Result<Option<i64>, ComputeError> {
        let asked = self.client.describe_launch_template_versions().launch_template_name(name);
        let mut pages = asked.into_paginator().send();
        while let Some(page) = pages.next().await {
            let versions = page.map_err(|e| call(&e))?.launch_template_versions.unwrap_or_default();
            let found = versions.iter().find(|v| says(v, wish));
            if let Some(number) = found.and_then(|version| version.version_number()) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    async fn new_version(&self, name: &str, wish: &Wish) -> Result<i64, ComputeError> {
        let made = self.client.create_launch_template_version().launch_template_name(name);
        let made = made.version_description(wish.description()).launch_template_data(wish.data());
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
        match given::problem(&data) {
            Some(problem) => Err(refused(&FieldError::new(
                "launch.launchTemplateId",
                id,
                format!("{} is {}", problem.setting, problem.value),
                problem.fix,
            ))),
            None => Ok(Template::Given { id: id.to_owned(), sized: given::sized(&data) }),
        }
    }
}

/// Whether a version is what we wrote for this wish. Its description is what we go by, and whoever copies that does not
/// get machines that outlive their end or give their role away.
fn says(version: &LaunchTemplateVersion, wish: &Wish) -> bool {
    version.version_description() == Some(wish.description().as_str())
        && version.launch_template_data().is_some_and(|data| given::problem(data).is_none())
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

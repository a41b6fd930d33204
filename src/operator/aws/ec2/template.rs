//! Keeps launch templates equal to the specs of their classes. Each class has one, `<table>-<class>`, whose default
//! version is updated; or it names a template of its owner's, which is checked and never changed.

mod diff;
mod observed;
pub(crate) mod spec;
mod user_data;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{
    LaunchTemplate, LaunchTemplateVersion, ResourceType, ResponseLaunchTemplateData, TagSpecification,
};

use super::Ec2Options;
use super::errors::{CallError, Meaning};
use super::machine::{CLASS, TABLE, tagged};
use crate::aws::ec2::template::diff::differences;
use crate::aws::ec2::template::spec::{TemplateSpec, template_name};
use crate::model::{ClassName, FieldError, PoolSpec, TableName};
use crate::ports::ComputeError;
use crate::store::Difference;

/// The launch template of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Template {
    /// Our own template, kept equal to the class.
    Managed {
        /// Its name.
        name: String,
    },
    /// A provided template, which was checked.
    Provided {
        /// Its id.
        id: String,
        /// Whether it selects instance types itself.
        sized: bool,
    },
}

/// The change that makes a class's template equal to its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateChange {
    /// None: the template is equal.
    None,
    /// The template does not exist yet.
    Create,
    /// Its default version differs.
    Update,
    /// The class names a provided template, which is good.
    Provided,
}

/// The comparison of a class's template with its spec.
enum TemplateDiff {
    /// It is equal to the spec.
    Equal(Template),
    /// It is provided, and good.
    Provided(Template),
    /// It does not exist.
    Missing(TemplateSpec),
    /// It differs; the content of its default version.
    Different(TemplateSpec, Option<Box<ResponseLaunchTemplateData>>),
}

/// The templates of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Templates<'a> {
    pub(super) client: &'a Client,
    pub(super) options: &'a Ec2Options,
}

/// Deletes a class's own launch template, recognised by its tags; returns whether there was one.
///
/// # Errors
/// EC2 cannot be reached, or refuses.
pub async fn delete_template(
    config: &aws_config::SdkConfig,
    table: &TableName,
    class: &ClassName,
) -> Result<bool, ComputeError> {
    let client = Client::new(config);
    let name = template_name(table, class);
    let told = client.describe_launch_templates().launch_template_names(&name).send().await;
    let found = match told {
        Ok(told) => told.launch_templates.unwrap_or_default().into_iter().next(),
        Err(error) => match CallError::of(&error) {
            CallError { meaning: Meaning::NoSuchTemplate, .. } => None,
            error => return Err(error.into()),
        },
    };
    let Some(template) = found else { return Ok(false) };
    let said = |key| tagged(template.tags.as_ref(), key);
    if (said(TABLE), said(CLASS)) != (Some(table.as_str()), Some(class.as_str())) {
        return Err(ComputeError::Refused(format!("the launch template {name} is not this class's")));
    }
    client.delete_launch_template().launch_template_name(&name).send().await.map_err(|error| call(&error))?;
    Ok(true)
}

impl Templates<'_> {
    /// Checks that a class's machines would find a runner and an agent of their architecture: machines from our
    /// template get them only from the operator's own settings, and our agent ends its machine at first boot if it has
    /// none. Launches continue nevertheless: a foreign agent may need none, and a class whose machines fail is backed
    /// off.
    pub(super) fn check_packages(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
        let architecture = spec.launch.architecture.as_deref();
        if spec.launch.launch_template_id.is_some() {
            return Ok(());
        }
        let of = architecture.map(|name| format!(" of {name}")).unwrap_or_default();
        let suffix =
            if architecture == Some("arm64") && !self.options.runner.is_empty() { "_arm64" } else { "" };
        if self.options.runner.of(architecture).is_none() {
            let class = &spec.resource_class;
            let message = format!("missing, and machines{of} of class {class} would find no runner");
            let fix = format!(
                "set agent.runner_url{suffix}, agent.runner_sha256{suffix} and agent.runner_version of the operator, or \
                 give the class a launchTemplateId whose user data tells the agent of a runner"
            );
            return Err(refused(&FieldError::new(format!("agent.runner_url{suffix}"), "", message, fix)));
        }
        if !self.options.program.is_empty() && self.options.program.of(architecture).is_none() {
            let class = &spec.resource_class;
            let message = format!("missing, and machines{of} of class {class} would fetch no agent");
            let fix = format!("set agent.url{suffix} and agent.sha256{suffix} of the operator");
            return Err(refused(&FieldError::new(format!("agent.url{suffix}"), "", message, fix)));
        }
        Ok(())
    }

    /// Compares a class's template field by field; nothing is changed.
    pub(super) async fn examine(
        &self,
        spec: &PoolSpec,
    ) -> Result<(TemplateChange, Vec<Difference>), ComputeError> {
        let image = self.look_up(spec).await?;
        Ok(match self.compare(spec, image.as_deref()).await? {
            TemplateDiff::Equal(_) => (TemplateChange::None, Vec::new()),
            TemplateDiff::Provided(_) => (TemplateChange::Provided, Vec::new()),
            TemplateDiff::Missing(wanted) => (TemplateChange::Create, differences(&wanted.data(), None)),
            TemplateDiff::Different(wanted, data) => {
                (TemplateChange::Update, differences(&wanted.data(), data.as_deref()))
            }
        })
    }

    /// Returns the present template of a class, changed or not; `None` if there is none.
    pub(super) async fn existing(&self, spec: &PoolSpec) -> Result<Option<Template>, ComputeError> {
        Ok(match self.compare(spec, None).await? {
            TemplateDiff::Equal(template) | TemplateDiff::Provided(template) => Some(template),
            TemplateDiff::Missing(_) => None,
            TemplateDiff::Different(wanted, _) => Some(Template::Managed { name: wanted.name() }),
        })
    }

    /// Makes a class's template equal to its spec. The image is the one to which the class's parameter was resolved, if
    /// it names one: its root device is the volume that the template describes.
    pub(super) async fn ensure(
        &self,
        spec: &PoolSpec,
        image: Option<&str>,
    ) -> Result<(Template, TemplateChange), ComputeError> {
        let unknown = image.is_none() && spec.launch.parameter().is_some();
        let resolved = match unknown && !spec.launch.root_volume().is_default() {
            true => Some(self.resolve(spec).await?),
            false => None,
        };
        Ok(match self.compare(spec, image.or(resolved.as_deref())).await? {
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

    /// Resolves a class's image parameter. EC2 resolves the parameters of launch templates, so a version of the class's
    /// own that contains the parameter is described; if there is none yet, one is created.
    pub(super) async fn resolve(&self, spec: &PoolSpec) -> Result<String, ComputeError> {
        if let Some(image) = self.look_up(spec).await? {
            return Ok(image);
        }
        let wanted = self.template_spec(spec, None).await?;
        match self.ours(&wanted.name(), &spec.resource_class).await? {
            None => self.create(&wanted).await?,
            Some(_) => drop(self.new_version(&wanted.name(), &wanted).await?),
        }
        let missing = || ComputeError::Unknown(format!("EC2 does not tell of {} yet", wanted.name()));
        self.look_up(spec).await?.ok_or_else(missing)
    }

    /// Resolves the image without creating a version; `None` if the class names its image by an id, or if no version of
    /// its template contains the parameter yet.
    async fn look_up(&self, spec: &PoolSpec) -> Result<Option<String>, ComputeError> {
        let Some(parameter) = spec.launch.parameter() else { return Ok(None) };
        let (name, alias) = (template_name(&self.options.table, &spec.resource_class), alias(parameter));
        if self.ours(&name, &spec.resource_class).await?.is_none() {
            return Ok(None);
        }
        let image = |version: &LaunchTemplateVersion| {
            version.launch_template_data().and_then(|data| data.image_id()).map(str::to_owned)
        };
        let names_it = |version: &LaunchTemplateVersion| image(version).as_deref() == Some(alias.as_str());
        let Some(number) = self.version_where(&name, names_it).await? else { return Ok(None) };
        let asked = self.client.describe_launch_template_versions().launch_template_name(&name);
        let told =
            asked.versions(number.to_string()).resolve_alias(true).send().await.map_err(|e| call(&e))?;
        let told = told.launch_template_versions.unwrap_or_default();
        let found = told.first().and_then(image).filter(|id| id.starts_with("ami-"));
        found.map(Some).ok_or_else(|| {
            let fix = "name a parameter whose value is the id of an image";
            refused(&FieldError::new("launch.ami", parameter, "was not resolved to an image", fix))
        })
    }

    async fn compare(&self, spec: &PoolSpec, image: Option<&str>) -> Result<TemplateDiff, ComputeError> {
        if let Some(id) = &spec.launch.launch_template_id {
            return self.judge(id).await.map(TemplateDiff::Provided);
        }
        let wanted = self.template_spec(spec, image).await?;
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

    /// Builds the wanted template. The image is the one to which the class's parameter was resolved; before it is
    /// known, the template describes no volume.
    async fn template_spec(
        &self,
        spec: &PoolSpec,
        image: Option<&str>,
    ) -> Result<TemplateSpec, ComputeError> {
        let launch = &spec.launch;
        let Some(said) = launch.ami.as_deref() else {
            let fix = "name the image to launch from, or a launchTemplateId";
            return Err(refused(&FieldError::new("launch.ami", "", "missing", fix)));
        };
        let (ami, image) = match launch.parameter() {
            Some(parameter) => (alias(parameter), image),
            None => (said.to_owned(), Some(said)),
        };
        let volume = launch.root_volume();
        let root = match image.filter(|_| !volume.is_default()) {
            Some(image) => Some((self.root_device(image).await?, volume)),
            None => None,
        };
        TemplateSpec::of(self.options, spec, &ami, root).map_err(|error| refused(&error))
    }

    /// Returns the name of an image's root device; a volume of another name would be a second one.
    async fn root_device(&self, ami: &str) -> Result<String, ComputeError> {
        let told = self.client.describe_images().image_ids(ami).send().await.map_err(|e| call(&e))?;
        let device = told.images.unwrap_or_default().into_iter().find_map(|image| image.root_device_name);
        device.ok_or_else(|| {
            let fix = "name an image this account may use, or leave launch.volume and launch.volumeGiB out";
            refused(&FieldError::new("launch.ami", ami, "has no root device that is known", fix))
        })
    }

    /// Returns the template with this name, if it exists and is ours.
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

    /// Makes a version with the wanted content the default one: an earlier one if there is, so that two operators with
    /// different settings, as during an update, do not create versions without end.
    async fn update(&self, wanted: &TemplateSpec) -> Result<(), ComputeError> {
        let name = wanted.name();
        let number = match self.version_where(&name, |version| matches_spec(version, wanted)).await? {
            Some(number) => number,
            None => self.new_version(&name, wanted).await?,
        };
        let set = self.client.modify_launch_template().launch_template_name(&name);
        set.default_version(number.to_string()).send().await.map(|_| ()).map_err(|e| call(&e))
    }

    async fn version_where(
        &self,
        name: &str,
        meant: impl Fn(&LaunchTemplateVersion) -> bool + Send + Sync,
    ) -> Result<Option<i64>, ComputeError> {
        let asked = self.client.describe_launch_template_versions().launch_template_name(name);
        let mut pages = asked.into_paginator().send();
        while let Some(page) = pages.next().await {
            let versions = page.map_err(|e| call(&e))?.launch_template_versions.unwrap_or_default();
            let found = versions.iter().find(|version| meant(version));
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

    /// Reads a provided template and refuses one that would let a machine outlive its end or expose its role.
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
        match observed::problem(&data) {
            Some(problem) => Err(refused(&FieldError::new(
                "launch.launchTemplateId",
                id,
                format!("{} is {}", problem.setting, problem.value),
                problem.fix,
            ))),
            None => Ok(Template::Provided { id: id.to_owned(), sized: observed::sized(&data) }),
        }
    }
}

/// Formats a Systems Manager parameter for a launch template (EC2, `RequestLaunchTemplateData`).
fn alias(parameter: &str) -> String {
    format!("resolve:ssm:{parameter}")
}

/// Returns whether a version is the one that we wrote for this content. Its description identifies it; a forged
/// description still cannot yield machines that outlive their end or expose their role.
fn matches_spec(version: &LaunchTemplateVersion, wanted: &TemplateSpec) -> bool {
    version.version_description() == Some(wanted.description().as_str())
        && version.launch_template_data().is_some_and(|data| observed::problem(data).is_none())
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

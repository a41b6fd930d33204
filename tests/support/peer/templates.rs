//! Launch templates and their versions.

use std::collections::BTreeMap;

use super::answer::{Refused, Xml};
use super::checks;
use super::params::Params;
use super::rules::Rules;
use super::world::World;

/// Every template, by id.
#[derive(Debug, Default)]
pub struct Templates(BTreeMap<String, Template>);

#[derive(Debug)]
struct Template {
    name: String,
    tags: BTreeMap<String, String>,
    default: usize,
    versions: Vec<Version>,
}

/// One version.
#[derive(Clone, Debug)]
pub struct Version {
    description: Option<String>,
    pub data: Params,
}

impl Version {
    fn of(asked: &Params) -> Self {
        Self {
            description: asked.text("VersionDescription").map(str::to_owned),
            data: asked.at("LaunchTemplateData").cloned().unwrap_or_default(),
        }
    }
}

impl Templates {
    /// The version that a fleet's specification means.
    pub fn resolve(&self, wanted: &Params) -> Result<&Version, Refused> {
        let id = self.find(wanted)?;
        let template = &self.0[&id];
        let number = template.number(wanted.text("Version").unwrap_or("$Default"))?;
        Ok(&template.versions[number - 1])
    }

    fn find(&self, wanted: &Params) -> Result<String, Refused> {
        if let Some(id) = wanted.text("LaunchTemplateId") {
            let missing = || {
                let why = format!("The specified launch template, with template ID {id}, does not exist.");
                Refused::new("InvalidLaunchTemplateId.NotFound", why)
            };
            return self.0.contains_key(id).then(|| id.to_owned()).ok_or_else(missing);
        }
        let name = wanted.needed("LaunchTemplateName")?;
        self.named(name).ok_or_else(|| unknown_name(name))
    }

    fn named(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(_, template)| template.name == name).map(|(id, _)| id.clone())
    }

    /// How many versions a template has; none if there is no such template.
    pub fn versions(&self, name: &str) -> Option<usize> {
        Some(self.0[&self.named(name)?].versions.len())
    }

    /// Forgets a template.
    pub fn forget(&mut self, name: &str) {
        self.0.retain(|_, template| template.name != name);
    }
}

fn unknown_name(name: &str) -> Refused {
    let why =
        format!("At least one of the launch templates specified in the request does not exist ({name})");
    Refused::new("InvalidLaunchTemplateName.NotFoundException", why)
}

impl Template {
    fn number(&self, version: &str) -> Result<usize, Refused> {
        let number = match version {
            "$Default" => self.default,
            "$Latest" => self.versions.len(),
            number => number.parse().unwrap_or(0),
        };
        if (1..=self.versions.len()).contains(&number) {
            return Ok(number);
        }
        let why = format!("Could not find the specified version {version}");
        Err(Refused::new("InvalidLaunchTemplateId.VersionNotFound", why))
    }

    fn xml(&self, id: &str) -> Vec<Xml> {
        vec![
            Xml::text("launchTemplateId", id),
            Xml::text("launchTemplateName", &self.name),
            Xml::text("createTime", "2026-01-01T00:00:00.000Z"),
            Xml::text("defaultVersionNumber", self.default),
            Xml::text("latestVersionNumber", self.versions.len()),
            Xml::tags(&self.tags),
        ]
    }

    /// With its image resolved, where that is asked for.
    fn resolved_xml(&self, id: &str, number: usize, rules: &Rules) -> Result<Vec<Xml>, Refused> {
        let mut version = self.versions[number - 1].clone();
        if let Some(said) = version.data.text("ImageId") {
            let image = rules.image(said)?;
            version.data.set("ImageId", image);
        }
        Ok(self.told(id, number, &version))
    }

    fn version_xml(&self, id: &str, number: usize) -> Vec<Xml> {
        self.told(id, number, &self.versions[number - 1])
    }

    fn told(&self, id: &str, number: usize, version: &Version) -> Vec<Xml> {
        let told = [
            Xml::text("launchTemplateId", id),
            Xml::text("launchTemplateName", &self.name),
            Xml::text("versionNumber", number),
            Xml::text("defaultVersion", number == self.default),
            Xml::node("launchTemplateData", version.data.mirrored()),
        ];
        let described = version.description.iter().map(|text| Xml::text("versionDescription", text));
        told.into_iter().chain(described).collect()
    }
}

pub(super) fn create(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let name = asked.needed("LaunchTemplateName")?;
    checks::tags(asked)?;
    let templates = &mut world.templates.0;
    if templates.values().any(|template| template.name == name) {
        let why = "Launch template name already in use.";
        return Err(Refused::new("InvalidLaunchTemplateName.AlreadyExistsException", why));
    }
    let id = format!("lt-{:017x}", templates.len() + 1);
    let template = Template {
        name: name.to_owned(),
        tags: asked.tags_for("launch-template"),
        default: 1,
        versions: vec![Version::of(asked)],
    };
    let told = Xml::node("launchTemplate", template.xml(&id));
    templates.insert(id, template);
    Ok(vec![told])
}

pub(super) fn create_version(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let id = world.templates.find(asked)?;
    let template = world.templates.0.get_mut(&id).expect("a found template is there");
    template.versions.push(Version::of(asked));
    let number = template.versions.len();
    Ok(vec![Xml::node("launchTemplateVersion", template.version_xml(&id, number))])
}

pub(super) fn modify(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let id = world.templates.find(asked)?;
    let template = world.templates.0.get_mut(&id).expect("a found template is there");
    template.default = template.number(asked.needed("SetDefaultVersion")?)?;
    Ok(vec![Xml::node("launchTemplate", template.xml(&id))])
}

pub(super) fn describe(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let (names, ids) = (asked.texts("LaunchTemplateName"), asked.texts("LaunchTemplateId"));
    if let Some(name) = names.iter().find(|name| world.templates.named(name).is_none()) {
        return Err(unknown_name(name));
    }
    let all = world.templates.0.iter();
    let found = all
        .filter(|(id, template)| names.is_empty() || names.contains(&template.name) || ids.contains(id))
        .map(|(id, template)| template.xml(id));
    Ok(vec![Xml::set("launchTemplates", found)])
}

pub(super) fn describe_versions(world: &mut World, asked: &Params) -> Result<Vec<Xml>, Refused> {
    let id = world.templates.find(asked)?;
    let template = &world.templates.0[&id];
    let wanted = asked.texts("LaunchTemplateVersion");
    let numbers: Vec<usize> = if wanted.is_empty() {
        (1..=template.versions.len()).rev().collect()
    } else {
        wanted.iter().map(|version| template.number(version)).collect::<Result<_, _>>()?
    };
    let resolved = asked.text("ResolveAlias") == Some("true");
    let told = |number| match resolved {
        true => template.resolved_xml(&id, number, &world.rules),
        false => Ok(template.version_xml(&id, number)),
    };
    let told = numbers.into_iter().map(told).collect::<Result<Vec<_>, _>>()?;
    let (page, next) = world.page(told, asked)?;
    Ok([Xml::set("launchTemplateVersionSet", page)].into_iter().chain(next).collect())
}

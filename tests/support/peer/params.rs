//! What does a call of the Query protocol ask? Its flat names (`Filter.1.Value.2`) are a tree written out.

use std::collections::BTreeMap;

use super::answer::{Refused, Xml};

/// A node of a call's tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    value: Option<String>,
    children: BTreeMap<String, Params>,
}

impl Params {
    pub fn parse(body: &[u8]) -> Self {
        let mut root = Self::default();
        for (name, value) in form_urlencoded::parse(body) {
            let node = name
                .split('.')
                .fold(&mut root, |node, part| node.children.entry(part.to_owned()).or_default());
            node.value = Some(value.into_owned());
        }
        root
    }

    /// The node at a dotted path.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, part| node.children.get(part))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.at(path)?.value.as_deref()
    }

    /// Sets the value at a name.
    pub fn set(&mut self, name: &str, value: String) {
        self.children.entry(name.to_owned()).or_default().value = Some(value);
    }

    pub fn number(&self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    pub fn needed(&self, path: &str) -> Result<&str, Refused> {
        self.text(path).ok_or_else(|| {
            Refused::new("MissingParameter", format!("The request must contain the parameter {path}"))
        })
    }

    /// The elements of a list, in order.
    pub fn list(&self, path: &str) -> Vec<&Self> {
        self.at(path).map(Self::elements).unwrap_or_default()
    }

    /// The values of a list of texts.
    pub fn texts(&self, path: &str) -> Vec<String> {
        self.list(path).into_iter().filter_map(|node| node.value.clone()).collect()
    }

    /// The tags of a list of tag specifications that are meant for a kind of resource.
    pub fn tags_for(&self, kind: &str) -> BTreeMap<String, String> {
        let meant = |spec: &&Self| spec.text("ResourceType") == Some(kind);
        self.list("TagSpecification").into_iter().filter(meant).flat_map(|spec| spec.tags()).collect()
    }

    /// A list of tags.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let tag = |tag: &Self| Some((tag.text("Key")?.to_owned(), tag.text("Value")?.to_owned()));
        self.list("Tag").into_iter().filter_map(tag).collect()
    }

    /// The same as EC2 answers it: `SecurityGroupId.1` becomes `securityGroupIdSet/item`.
    pub fn mirrored(&self) -> Vec<Xml> {
        self.children.iter().map(|(name, node)| node.mirror(name)).collect()
    }

    fn mirror(&self, name: &str) -> Xml {
        let small = name[..1].to_ascii_lowercase() + &name[1..];
        if let Some(value) = &self.value {
            return Xml::text(&small, value);
        }
        let elements = self.elements();
        if elements.is_empty() {
            return Xml::node(&small, self.mirrored());
        }
        let items = elements.into_iter().map(|element| match &element.value {
            Some(value) => Xml::text("item", value),
            None => Xml::node("item", element.mirrored()),
        });
        Xml::node(&format!("{small}Set"), items.collect())
    }

    fn elements(&self) -> Vec<&Self> {
        let mut found: Vec<(usize, &Self)> =
            self.children.iter().filter_map(|(key, child)| Some((key.parse().ok()?, child))).collect();
        found.sort_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, child)| child).collect()
    }
}

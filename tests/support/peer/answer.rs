//! What does EC2's answer look like on the wire?

use std::fmt::Write as _;

/// An element.
#[derive(Clone, Debug)]
pub struct Xml {
    name: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Text(String),
    Children(Vec<Xml>),
}

impl Xml {
    pub fn text(name: &str, value: impl ToString) -> Self {
        Self { name: name.to_owned(), content: Content::Text(value.to_string()) }
    }

    pub fn node(name: &str, children: Vec<Self>) -> Self {
        Self { name: name.to_owned(), content: Content::Children(children) }
    }

    /// A list as EC2 writes it.
    pub fn set(name: &str, items: impl IntoIterator<Item = Vec<Self>>) -> Self {
        Self::node(name, items.into_iter().map(|children| Self::node("item", children)).collect())
    }

    /// A set of tags.
    pub fn tags<'a>(tags: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let pair = |(key, value)| vec![Self::text("key", key), Self::text("value", value)];
        Self::set("tagSet", tags.into_iter().map(pair))
    }

    fn write(&self, to: &mut String) {
        let name = &self.name;
        match &self.content {
            Content::Text(text) => {
                let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                write!(to, "<{name}>{text}</{name}>").expect("writing to a string cannot fail");
            }
            Content::Children(children) => {
                write!(to, "<{name}>").expect("writing to a string cannot fail");
                children.iter().for_each(|child| child.write(to));
                write!(to, "</{name}>").expect("writing to a string cannot fail");
            }
        }
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: String,
    pub message: String,
    pub status: u16,
}

impl Refused {
    /// Of the usual status, 400, 403 for permissions and 503 for too many calls.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        let status = match code {
            "UnauthorizedOperation" | "AuthFailure" => 403,
            "RequestLimitExceeded" => 503,
            "InternalError" => 500,
            "DryRunOperation" => 412,
            _ => 400,
        };
        Self { code: code.to_owned(), message: message.into(), status }
    }

    pub fn body(&self) -> String {
        let error = vec![Xml::text("Code", &self.code), Xml::text("Message", &self.message)];
        let errors = Xml::node("Errors", vec![Xml::node("Error", error)]);
        document(&Xml::node("Response", vec![errors, Xml::text("RequestID", "peer")]))
    }
}

/// The answer to an action.
pub(super) fn body(action: &str, mut children: Vec<Xml>) -> String {
    children.insert(0, Xml::text("requestId", "peer"));
    document(&Xml::node(&format!("{action}Response"), children))
}

fn document(root: &Xml) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    root.write(&mut text);
    text
}

//! The body of a ring of the doorbell: the key of the record that was written.

use serde::{Deserialize, Serialize};

use super::identity::RecordId;

/// The largest body that is read, in bytes: DynamoDB's limits of both keys, and some more for their names.
const LARGEST: usize = 4 * 1024;

/// The body as JSON.
#[derive(Serialize, Deserialize)]
struct Body {
    pk: String,
    sk: String,
}

/// Writes the body of a ring about this record.
pub fn ring_body(key: &RecordId) -> String {
    serde_json::to_string(&Body { pk: key.pk(), sk: key.sk() }).unwrap_or_default()
}

/// Reads the record that a ring is about; `None` if its body names none that others than the operator write. Anybody
/// who may ring may write anything, so the record itself is read.
pub fn rung_about(body: &str) -> Option<RecordId> {
    if body.len() > LARGEST {
        return None;
    }
    let Body { pk, sk } = serde_json::from_str(body).ok()?;
    match RecordId::new(pk, sk) {
        key @ (RecordId::Request(_) | RecordId::Pool(_) | RecordId::Instance(_) | RecordId::Agent(_)) => {
            Some(key)
        }
        RecordId::Launch(_)
        | RecordId::Lease(_)
        | RecordId::Queue(..)
        | RecordId::Event { .. }
        | RecordId::Unnamed(..)
        | RecordId::Foreign(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:ec2:us-east-1:1:instance/i-1";

    #[test]
    fn a_ring_names_the_record_that_was_written() {
        let machine = |kind: &str| RecordId::new(format!("{kind}#{ARN}"), kind);
        for key in [
            RecordId::new("request#acme/web#1", "request#default#1"),
            RecordId::new("pool#small", "pool"),
            machine("instance"),
            machine("agent"),
        ] {
            assert_eq!(rung_about(&ring_body(&key)), Some(key));
        }
    }

    #[test]
    fn a_ring_about_anything_else_only_makes_the_operator_look() {
        let long = format!(r#"{{"pk":"pool#{}","sk":"pool"}}"#, "a".repeat(LARGEST));
        for body in [
            "ring",
            "",
            "{}",
            r#"{"pk":"pool#small"}"#,
            r#"{"pk":7,"sk":"pool"}"#,
            r#"{"pk":"lease#operator","sk":"lease"}"#,
            r#"{"pk":"launch#a","sk":"launch"}"#,
            r#"{"pk":"request#acme/web#1","sk":"event#1"}"#,
            r#"{"pk":"agent#x","sk":"log"}"#,
            r#"{"pk":"request#nobody","sk":"request#default#1"}"#,
            &long,
        ] {
            assert_eq!(rung_about(body), None, "{body}");
        }
    }
}

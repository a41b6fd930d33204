//! The HTTP endpoint of the embedded table. It requires the data directory's key: a client that can write a class
//! record can run its script, so neither a web page nor another user of this host gets access. It replaces the engine's
//! own server, which checks no credential and responds to every origin.

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use dynoxide::{Database, DynoxideError};
use runyard_core::host::is_address;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// DynamoDB's limit of a request body, 16 MB.
const LARGEST: usize = 16 << 20;
const JSON: &str = "application/x-amz-json-1.0";

/// The table behind its key.
#[derive(Clone)]
pub(super) struct Door {
    database: Database,
    key: String,
}

/// Why a request is rejected.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// It comes from a web page.
    Origin,
    /// It was sent to another name: a page whose name was made to point to this address.
    Host,
    /// It carries no key, or a wrong one.
    Key,
}

impl Refused {
    const fn message(&self) -> &'static str {
        match self {
            Self::Origin => "the table answers no web page",
            Self::Host => "the table answers under its address only",
            Self::Key => {
                "the access key is not this data directory's: read its file env into your shell again \
                 (. DIR/env)"
            }
        }
    }
}

impl Door {
    pub(super) const fn new(database: Database, key: String) -> Self {
        Self { database, key }
    }

    pub(super) fn router(self) -> Router {
        Router::new().fallback(answer).layer(DefaultBodyLimit::max(LARGEST)).with_state(self)
    }

    fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        if headers.contains_key(ORIGIN) {
            return Err(Refused::Origin);
        }
        if !headers.get(HOST).and_then(|host| host.to_str().ok()).is_some_and(is_address) {
            return Err(Refused::Host);
        }
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = authorization.and_then(access_key);
        if key == Some(self.key.as_str()) { Ok(()) } else { Err(Refused::Key) }
    }
}

/// Returns the access key of a signed request: `AWS4-HMAC-SHA256 Credential=<key>/<date>/…`.
fn access_key(authorization: &str) -> Option<&str> {
    let (_, credential) = authorization.split_once("Credential=")?;
    Some(credential.split_once('/')?.0)
}

async fn answer(
    State(door): State<Door>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    if let Err(refused) = door.admit(&headers) {
        tracing::warn!(reason = refused.message(), "a request to the table was refused");
        return error(StatusCode::FORBIDDEN, "AccessDeniedException", refused.message());
    }
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or("");
    let operation = target.split_once('.').map_or("", |(_, operation)| operation);
    if method != Method::POST || uri.path() != "/" {
        return error(StatusCode::NOT_FOUND, "UnknownOperationException", "requests are POST /");
    }
    match carry_out(&door.database, operation, &body) {
        Some(Ok(text)) => respond(StatusCode::OK, text),
        Some(Err(failure)) => {
            let status = StatusCode::from_u16(failure.status_code()).unwrap_or(StatusCode::BAD_REQUEST);
            respond(status, failure.to_json())
        }
        None => error(StatusCode::BAD_REQUEST, "UnknownOperationException", operation),
    }
}

/// Carries out one operation; none when the table does not have it.
fn carry_out(database: &Database, operation: &str, body: &str) -> Option<Result<String, DynoxideError>> {
    macro_rules! operations {
        ($($name:literal => $method:ident,)*) => {
            match operation {
                $($name => Some(typed(body, |request| database.$method(request))),)*
                _ => None,
            }
        };
    }
    operations! {
        "CreateTable" => create_table,
        "DeleteTable" => delete_table,
        "DescribeTable" => describe_table,
        "UpdateTable" => update_table,
        "ListTables" => list_tables,
        "TagResource" => tag_resource,
        "UntagResource" => untag_resource,
        "ListTagsOfResource" => list_tags_of_resource,
        "PutItem" => put_item,
        "GetItem" => get_item,
        "DeleteItem" => delete_item,
        "UpdateItem" => update_item,
        "BatchGetItem" => batch_get_item,
        "BatchWriteItem" => batch_write_item,
        "Query" => query,
        "Scan" => scan,
        "TransactWriteItems" => transact_write_items,
        "TransactGetItems" => transact_get_items,
        "ListStreams" => list_streams,
        "DescribeStream" => describe_stream,
        "GetShardIterator" => get_shard_iterator,
        "GetRecords" => get_records,
        "UpdateTimeToLive" => update_time_to_live,
        "DescribeTimeToLive" => describe_time_to_live,
    }
}

fn typed<Request: DeserializeOwned, Answer: Serialize>(
    body: &str,
    act: impl FnOnce(Request) -> Result<Answer, DynoxideError>,
) -> Result<String, DynoxideError> {
    let request =
        serde_json::from_str(body).map_err(|error| DynoxideError::ValidationException(error.to_string()))?;
    let answer = act(request)?;
    serde_json::to_string(&answer).map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}

fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = serde_json::json!({
        "__type": format!("com.amazonaws.dynamodb.v20120810#{kind}"),
        "message": message,
    });
    respond(status, body.to_string())
}

fn respond(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let json = axum::http::HeaderValue::from_static(JSON);
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "the-key-of-this-directory";

    fn door() -> Door {
        Door::new(Database::memory().unwrap(), KEY.into())
    }

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<HeaderMap<_>>()
    }

    #[test]
    fn only_a_request_with_the_key_to_the_own_address_is_looked_at() {
        let signed =
            |key: &str| format!("AWS4-HMAC-SHA256 Credential={key}/20260101/local/dynamodb/aws4_request");
        let (own, foreign) = (signed(KEY), signed("local"));
        let door = door();
        let ok = [("host", "127.0.0.1:20001"), ("authorization", own.as_str())];
        assert_eq!(door.admit(&headers(&ok)), Ok(()));
        assert_eq!(door.admit(&headers(&[("host", "localhost:20001"), ok[1]])), Ok(()));
        let refused = [
            (vec![ok[0], ok[1], ("origin", "http://attacker.test:9999")], Refused::Origin),
            (vec![ok[0], ok[1], ("origin", "null")], Refused::Origin),
            (vec![("host", "attacker.test:20001"), ok[1]], Refused::Host),
            (vec![ok[1]], Refused::Host),
            (vec![ok[0], ("authorization", foreign.as_str())], Refused::Key),
            (vec![ok[0], ("authorization", "Bearer x")], Refused::Key),
            (vec![ok[0]], Refused::Key),
        ];
        for (fields, why) in refused {
            assert_eq!(door.admit(&headers(&fields)), Err(why), "{fields:?}");
        }
    }

    #[tokio::test]
    async fn a_page_of_another_origin_gets_no_word_even_of_its_preflight() {
        let preflight = headers(&[
            ("host", "127.0.0.1:20001"),
            ("origin", "http://attacker.test:9999"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,x-amz-target"),
        ]);
        let response =
            answer(State(door()), Method::OPTIONS, Uri::from_static("/"), preflight, String::new()).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert!(!response.headers().contains_key("access-control-allow-origin"));
    }

    #[test]
    fn an_operation_that_is_none_of_the_tables_is_no_operation() {
        let database = Database::memory().unwrap();
        assert!(carry_out(&database, "ExecuteStatement", "{}").is_none());
        assert!(carry_out(&database, "ListTables", "{}").unwrap().is_ok());
        let refused = carry_out(&database, "GetItem", "[]").unwrap().unwrap_err();
        assert_eq!(refused.status_code(), 400);
    }
}

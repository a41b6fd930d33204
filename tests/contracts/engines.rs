//! Can the engines be relied on? That each answers while it is held, is gone afterwards, and listens on loopback only.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use runyard_support::engine::Engine;

/// One DynamoDB `ListTables` by hand: the status line and the body.
fn list_tables(endpoint: &str) -> io::Result<String> {
    let address: SocketAddr =
        endpoint.strip_prefix("http://").expect("plain HTTP").parse().expect("an address");
    assert!(address.ip().is_loopback(), "{endpoint} is not loopback");
    let signed = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, \
                  SignedHeaders=host;x-amz-date, Signature=0";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: DynamoDB_20120810.ListTables\r\nX-Amz-Date: 20260101T000000Z\r\nAuthorization: {signed}\r\n\
         Content-Length: 2\r\n\r\n{{}}"
    );
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(600)))?;
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

fn answers_while_held_and_not_after(engine: Engine) {
    let endpoint = engine.endpoint().to_owned();
    let reply = list_tables(&endpoint).expect("the engine answers");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(reply.contains("TableNames"), "{reply}");
    drop(engine);
    // Another test that starts a process just then has a copy of every socket from its fork to its exec: the kernel
    // accepts for the dead engine meanwhile, and resets what it accepted.
    let gone = list_tables(&endpoint).expect_err("the engine outlived its handle").kind();
    let refusals = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(refusals.contains(&gone), "{endpoint} is held by somebody who does not answer: {gone}");
}

#[test]
fn ministack_answers_while_it_is_held_and_is_gone_afterwards() {
    answers_while_held_and_not_after(Engine::ministack());
}

#[test]
fn moto_answers_while_it_is_held_and_is_gone_afterwards() {
    answers_while_held_and_not_after(Engine::moto());
}

#[test]
fn dynoxide_answers_while_it_is_held_and_is_gone_afterwards() {
    answers_while_held_and_not_after(Engine::dynoxide_memory());
}

#[test]
fn two_engines_of_a_kind_stand_beside_each_other() {
    let (one, other) = (Engine::ministack(), Engine::ministack());
    assert_ne!(one.endpoint(), other.endpoint());
    assert!(list_tables(one.endpoint()).is_ok() && list_tables(other.endpoint()).is_ok());
}

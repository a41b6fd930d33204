//! Parses one HTTP/1.1 request of an engine's client (RFC 9112), as far as a proxy must read it.

use std::io::{self, Read};

/// Size limit of a header; no client of an engine sends more.
const MOST_HEAD: usize = 64 * 1024;
/// Size limit of a body; no description of a container is longer.
const MOST_BODY: usize = 16 * 1024 * 1024;

/// A request, and the raw part of its body that was read so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// Reads a request up to its body. Returns `None` if the client sends nothing.
    ///
    /// # Errors
    /// It is not a request, or the client is gone.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = end_of_head(&bytes) {
                break end;
            }
            if bytes.len() > MOST_HEAD {
                return Err(invalid("the head of a request is too long"));
            }
            if more(from, &mut bytes)? == 0 {
                return if bytes.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        };
        let body = bytes.split_off(end);
        let head = String::from_utf8(bytes).map_err(|_| invalid("the head of a request is no text"))?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(_)) = (words.next(), words.next(), words.next()) else {
            return Err(invalid("a request without a target"));
        };
        let pair =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        let (method, target) = (method.to_owned(), target.to_owned());
        Ok(Some(Self { method, target, headers: lines.filter_map(pair).collect(), body }))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Reads the complete body, and returns it without its transfer encoding.
    ///
    /// # Errors
    /// It is too long, or ends too early.
    pub(super) fn whole_body(&mut self, from: &mut impl Read) -> io::Result<Vec<u8>> {
        let chunked = self.header("Transfer-Encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked"));
        let length = self.header("Content-Length").and_then(|text| text.parse().ok()).unwrap_or(0);
        loop {
            let whole =
                if chunked { unchunked(&self.body)? } else { self.body.get(..length).map(<[u8]>::to_vec) };
            if let Some(whole) = whole {
                return Ok(whole);
            }
            if self.body.len() > MOST_BODY || length > MOST_BODY {
                return Err(invalid("the body of a request is too long"));
            }
            if more(from, &mut self.body)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Replaces the complete body.
    pub(super) fn set_body(&mut self, body: Vec<u8>) {
        let about = ["Content-Length", "Transfer-Encoding", "Expect"];
        self.headers.retain(|(name, _)| !about.iter().any(|is| name.eq_ignore_ascii_case(is)));
        self.headers.push(("Content-Length".to_owned(), body.len().to_string()));
        self.body = body;
    }

    /// Serializes the request as the last of its connection, unless the connection is upgraded.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        let upgrades =
            self.header("Connection").is_some_and(|how| how.to_ascii_lowercase().contains("upgrade"));
        if !upgrades {
            self.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("Connection"));
            self.headers.push(("Connection".to_owned(), "close".to_owned()));
        }
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in self.headers {
            head.extend([&name, ": ", &value, "\r\n"]);
        }
        head.push_str("\r\n");
        [head.into_bytes(), self.body].concat()
    }
}

fn more(from: &mut impl Read, into: &mut Vec<u8>) -> io::Result<usize> {
    let mut some = [0; 8192];
    let count = from.read(&mut some)?;
    into.extend_from_slice(&some[..count]);
    Ok(count)
}

/// Returns the position at which the header ends, if it is complete.
pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Decodes a chunked body, if all chunks were received.
fn unchunked(mut bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut whole = Vec::new();
    loop {
        let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let size = std::str::from_utf8(&bytes[..end]).ok().and_then(|line| line.split(';').next());
        let size = size.and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let size = size.filter(|size| *size <= MOST_BODY).ok_or_else(|| invalid("the size of a chunk"))?;
        let (from, to) = (end + 2, end + 2 + size);
        let Some(chunk) = bytes.get(from..to).filter(|_| bytes.len() >= to + 2) else { return Ok(None) };
        if size == 0 {
            return Ok(Some(whole));
        }
        whole.extend_from_slice(chunk);
        bytes = &bytes[to + 2..];
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, as a slow client does.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            (into[0], self.0) = (*first, rest);
            Ok(1)
        }
    }

    fn read(text: &str) -> (Request, Slow<'_>) {
        let mut from = Slow(text.as_bytes());
        (Request::read(&mut from).expect("readable").expect("a request"), from)
    }

    #[test]
    fn a_request_is_passed_on_as_the_last_of_its_connection() {
        let (request, _) = read("GET /_ping HTTP/1.1\r\nHost: d\r\nConnection: keep-alive\r\n\r\n");
        let passed = String::from_utf8(request.into_bytes()).expect("text");
        assert_eq!(passed, "GET /_ping HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n");
    }

    #[test]
    fn a_connection_that_is_to_become_a_stream_stays_what_it_is() {
        let text = "POST /exec/1/start HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
        assert_eq!(read(text).0.into_bytes(), text.as_bytes());
    }

    #[test]
    fn a_body_is_read_whole_whether_its_length_is_known_or_it_comes_in_chunks() {
        for framed in [
            "Content-Length: 9\r\n\r\n{\"a\": [1]}",
            "transfer-encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n5;x=y\r\n: [1]\r\n0\r\n\r\n",
        ] {
            let text = format!("POST /containers/create HTTP/1.1\r\n{framed}");
            let (mut request, mut from) = read(&text);
            assert_eq!(request.whole_body(&mut from).expect("a body"), b"{\"a\": [1]");
        }
    }

    #[test]
    fn a_changed_body_has_its_own_length_and_no_chunks() {
        let (mut request, mut from) =
            read("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
        request.whole_body(&mut from).expect("a body");
        request.set_body(b"{}".to_vec());
        let passed = String::from_utf8(request.into_bytes()).expect("text");
        assert_eq!(passed, "POST /a HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
    }

    #[test]
    fn what_is_no_request_or_ends_too_early_is_an_error() {
        for text in ["GET\r\n\r\n", "GET / HTTP/1.1\r\nHost: d\r\n"] {
            assert!(Request::read(&mut Slow(text.as_bytes())).is_err(), "{text}");
        }
        assert_eq!(Request::read(&mut Slow(b"")).expect("nothing"), None);
        let (mut request, mut from) = read("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab");
        assert!(request.whole_body(&mut from).is_err());
    }
}

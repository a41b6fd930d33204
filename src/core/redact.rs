//! Takes credentials out of text that was written by third-party programs, before a person or a record gets it. Known
//! secrets are removed by value, others by their form; words that are too long for a sentence are removed too.

/// The replacement for a credential.
const HIDDEN: &str = "***";
/// No word of a sentence is longer, in bytes; boxes, tokens and keys that a script might print are longer.
const LONGEST_WORD: usize = 160;
/// This many capital letters and digits in a row are a token or the id of a key.
const CAPITALS: usize = 16;
/// The prefixes of credentials: GitHub's tokens, JSON web tokens, and the ids of AWS's keys.
const BEGINNINGS: [&str; 9] = ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "eyJ", "AKIA", "ASIA"];
/// Names whose value is a credential, as part of a word and in any case.
const NAMES: [&str; 8] =
    ["token", "password", "passwd", "secret", "credential", "private_key", "privatekey", "api_key"];
/// Words after which the next word is a credential.
const ANNOUNCE: [&str; 2] = ["bearer", "basic"];

/// Returns the text without credentials and without control characters except line feeds.
///
/// # Guarantees
/// - The result contains none of `secrets`, nor any line between the first and the last line of a PEM block.
/// - It contains no word of one of the forms above, and no value behind one of the names above.
/// - It has as many lines as the text.
pub fn redact(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, HIDDEN);
    }
    let mut in_key = false;
    let lines = text.split('\n').map(|line| {
        let begins = line.contains("-----BEGIN ");
        let hidden = in_key || begins;
        in_key = (in_key || begins) && !line.contains("-----END ");
        if hidden { HIDDEN.to_owned() } else { redacted_line(line) }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn redacted_line(line: &str) -> String {
    let plain: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut next_is_secret = false;
    let words = plain.split(' ').map(|word| {
        if word.is_empty() {
            return String::new();
        }
        let hidden = std::mem::take(&mut next_is_secret);
        let (shown, announces) = redacted_word(word);
        next_is_secret = announces;
        if hidden { HIDDEN.to_owned() } else { shown }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns a word as it may be shown, and whether the next word is a credential.
fn redacted_word(word: &str) -> (String, bool) {
    if word.len() > LONGEST_WORD || is_credential(word) {
        return (HIDDEN.to_owned(), false);
    }
    let small = word.to_ascii_lowercase();
    let announces = ANNOUNCE.contains(&small.trim_end_matches(':'));
    if announces {
        return (word.to_owned(), true);
    }
    let Some(split) = word.find(['=', ':']) else {
        let option = word.starts_with("--") && NAMES.iter().any(|name| small.ends_with(name));
        return (word.to_owned(), option);
    };
    let (name, value) = (&small[..split], &word[split + 1..]);
    let value = value.trim_start_matches(['"', '\'']);
    let named = NAMES.iter().any(|secret| name.trim_end_matches(['"', '\'']).ends_with(secret));
    match (named, value.is_empty()) {
        (true, true) => (word.to_owned(), true),
        (true, false) => (format!("{}{HIDDEN}", &word[..=split]), false),
        (false, _) => (word.to_owned(), false),
    }
}

/// Returns whether any part of a word has the form of a credential.
fn is_credential(word: &str) -> bool {
    let parts = word.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.'));
    let capital = |part: &str| {
        let mut row = 0;
        part.bytes().any(|b| {
            row = if b.is_ascii_uppercase() || b.is_ascii_digit() { row + 1 } else { 0 };
            row >= CAPITALS
        }) && part.bytes().any(|b| b.is_ascii_uppercase())
    };
    // AWS's secret keys: forty characters of base64, which are no word of a language.
    let base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'/' || b == b'+' || b == b'=';
    let mixed = |word: &str| {
        let has = |is: fn(&u8) -> bool| word.as_bytes().iter().any(is);
        word.len() == 40
            && word.bytes().all(base64)
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_digit)
    };
    let bare = word.trim_matches(['"', '\'', ',', ';', '(', ')']);
    mixed(bare)
        || parts.into_iter().any(|part| {
            BEGINNINGS.iter().any(|beginning| part.starts_with(beginning) && part.len() > beginning.len() + 8)
                || capital(part)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_and_what_has_the_form_of_a_credential_is_taken_out() {
        let canaries = [
            "AABBCC2DDEEFF3GGHH4IIJJ5KKLLM",
            "ghs_16C7e42F292c6912E7710c838347Ae178B4a",
            "github_pat_11ABCDEFG0abcdefghijkl",
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmF0dXJl",
            "hunter2-of-mine",
        ];
        for (n, canary) in canaries.iter().enumerate() {
            let said = if n == 6 {
                format!("the value {canary} was known")
            } else {
                format!("config: {canary}, refused")
            };
            let shown = redact(&said, &["hunter2-of-mine"]);
            assert!(!shown.contains(canary) && shown.contains(HIDDEN), "{shown}");
        }
        for said in [
            "password=opensesame",
            "TOKEN: opensesame",
            "\"clientSecret\":\"opensesame\"",
            "run --token opensesame",
            "Authorization: Bearer opensesame",
            "AWS_SESSION_TOKEN=opensesame",
            "db_password: opensesame",
        ] {
            assert!(!redact(said, &[]).contains("opensesame"), "{said}: {}", redact(said, &[]));
        }
        let key =
            "before\n-----BEGIN RSA PRIVATE KEY-----\nMIIopensesame\n-----END RSA PRIVATE KEY-----\nafter";
        assert_eq!(redact(key, &[]), "before\n***\n***\n***\nafter");
    }

    #[test]
    fn what_people_need_to_see_stays() {
        for said in [
            "2026-11-22T21:00:00Z INFO runyard_agent: begins task=configure i-0123456789abcdef0.3",
            "arn:aws:ec2:eu-west-1:123456789012:instance/i-0123456789abcdef0",
            "Http response code: NotFound from 'POST https://api.github.com/actions/runner-registration'",
            "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 does not match",
            "  indented\n\nlast",
            "request acme/web/1234567890/default/1: UD_REMOVE_REG_FAILED",
        ] {
            assert_eq!(redact(said, &[]), said);
        }
        assert_eq!(redact("a\u{1b}[31mb\tc", &[]), "a [31mb c");
    }
}

//! Recognises values that look like a pasted secret. Such a value is refused, and never repeated.

/// The replacement for a value that may be a secret, in messages.
pub(super) const HIDDEN: &str = "(not shown)";

/// The prefixes of credentials of GitHub and AWS, of keys and of web tokens.
const BEGINNINGS: [&str; 11] =
    ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "-----BEGIN", "AKIA", "ASIA", "eyJ", "Bearer "];

/// Returns whether a value looks like a credential rather than the name of one.
pub(super) fn looks_secret(value: &str) -> bool {
    let value = value.trim();
    BEGINNINGS.iter().any(|beginning| value.starts_with(beginning))
        || value.contains("-----BEGIN")
        // GitHub's classic tokens were 40 hexadecimal digits.
        || (value.len() == 40 && value.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Returns whether a key's name indicates that its value is a credential.
pub(super) fn names_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    !key.ends_with("_file")
        && ["token", "secret", "password", "key", "credential"].iter().any(|w| key.contains(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_told_from_paths() {
        for secret in ["ghp_0123", " github_pat_1", "x\n-----BEGIN RSA PRIVATE KEY-----", &"0a".repeat(20)] {
            assert!(looks_secret(secret), "{secret}");
        }
        for path in ["", "/run/secrets/github-token", "tokens/ghp_", "12345", &"0a".repeat(32)] {
            assert!(!looks_secret(path), "{path}");
        }
    }

    #[test]
    fn keys_that_hold_a_secret_are_told_from_keys_that_name_a_file() {
        assert!(names_secret("token") && names_secret("APP_PRIVATE_KEY"));
        assert!(!names_secret("token_file") && !names_secret("listen"));
    }
}

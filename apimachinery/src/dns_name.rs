//! The DNS names that Kubernetes accepts for objects, API groups and label prefixes (apimachinery
//! `pkg/util/validation/validation.go`), without regular expressions.

/// The longest label, in bytes (`DNS1123LabelMaxLength`).
const LABEL_MAX: usize = 63;
/// The longest subdomain, in bytes (`DNS1123SubdomainMaxLength`).
const SUBDOMAIN_MAX: usize = 253;
/// kube-apiserver's error message for a name that is longer than a subdomain may be (`MaxLenError`).
const SUBDOMAIN_LENGTH_RULE: &str = "must be no more than 253 bytes";
/// kube-apiserver's error message for a name with characters that a subdomain may not have
/// (`dns1123SubdomainErrorMsg`).
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Returns whether a text can be the name of a namespace: a DNS-1123 label (`ValidateNamespaceName` in apimachinery's
/// `pkg/api/validation/generic.go`).
pub fn is_namespace_name(text: &str) -> bool {
    text.len() <= LABEL_MAX && is_label_of_any_length(text)
}

/// Returns whether a text is a DNS-1123 subdomain, as the name of a ServiceAccount must be. Allocates nothing.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_MAX && is_subdomain_of_any_length(text)
}

/// Returns the reasons why a text is not a DNS-1123 subdomain, in Kubernetes' words (`IsDNS1123Subdomain`). The result
/// is empty for a subdomain.
pub fn dns_subdomain_errors(text: &str) -> Vec<&'static str> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(SUBDOMAIN_LENGTH_RULE);
    }
    if !is_subdomain_of_any_length(text) {
        errors.push(SUBDOMAIN_RULE);
    }
    errors
}

/// Checks the characters of each label of a subdomain. As in Kubernetes, a single label may have any length.
fn is_subdomain_of_any_length(text: &str) -> bool {
    text.split('.').all(is_label_of_any_length)
}

fn is_label_of_any_length(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_subdomain_is_a_dot_separated_list_of_labels() {
        for good in ["a", "a-b.c", "simple", "s.t-1", "now-with-dashes", "example.com", "1.2.3.4", &"a".repeat(253)] {
            assert!(is_dns_subdomain(good), "{good}");
            assert!(dns_subdomain_errors(good).is_empty(), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "-a", "a-", "a.-b", "S", "Example.com", "example_com", "s/t", "ü", "*"]
        {
            assert!(!is_dns_subdomain(bad), "{bad}");
            assert_eq!(dns_subdomain_errors(bad), [SUBDOMAIN_RULE], "{bad}");
        }
        for (long, errors) in [
            ("a".repeat(254), vec![SUBDOMAIN_LENGTH_RULE]),
            ("A".repeat(254), vec![SUBDOMAIN_LENGTH_RULE, SUBDOMAIN_RULE]),
        ] {
            assert!(!is_dns_subdomain(&long), "{long}");
            assert_eq!(dns_subdomain_errors(&long), errors, "{long}");
        }
    }

    #[test]
    fn namespace_name_is_a_single_dns_label() {
        for good in ["n", "kube-system", "0", &"n".repeat(63)] {
            assert!(is_namespace_name(good), "{good}");
        }
        for bad in ["", "n.m", "N", "-n", "n-", "n/m", &"n".repeat(64)] {
            assert!(!is_namespace_name(bad), "{bad}");
        }
    }
}

//! A value of `--tls-sni-cert-key`, in the form of kube-apiserver (component-base `cli/flag/namedcertkey_flag.go`).

use std::path::PathBuf;
use std::str::FromStr;

use tributary_hosts::CertificateName;

/// A serving certificate, its key, and its host names or addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniCertKey {
    /// The path of the certificate file.
    pub certificate: PathBuf,
    /// The path of the key file.
    pub key: PathBuf,
    /// The names and addresses for which clients get the certificate. If empty, the names in the certificate apply.
    pub names: Vec<CertificateName>,
}

impl FromStr for SniCertKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pair, names) = match text.split_once(':') {
            None => (text, Vec::new()),
            Some((_, names)) if names.trim().is_empty() => return Err("empty names list is not allowed".to_owned()),
            Some((pair, names)) => {
                (pair, names.split(',').map(|name| name.trim().parse()).collect::<Result<Vec<_>, _>>()?)
            }
        };
        let files: Vec<_> = pair.split(',').map(str::trim).collect();
        match files[..] {
            [certificate, key] if !certificate.is_empty() && !key.is_empty() => {
                Ok(Self { certificate: certificate.into(), key: key.into(), names })
            }
            _ => Err("expected comma separated certificate and key file paths".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_sni_cert_key_parses_as_in_kube_apiserver() {
        for (text, expected) in [
            ("foo.crt,foo.key", Ok("")),
            (" foo.crt , foo.key ", Ok("")),
            ("foo.crt,foo.key:*.foo.com,foo.com", Ok("*.foo.com foo.com")),
            ("foo.crt,foo.key: Foo.com , 10.0.0.1", Ok("foo.com 10.0.0.1")),
            ("foo.crt,foo.key:fd00::1", Ok("fd00::1")),
            ("foo.crt,foo.key:*", Ok("*")),
            ("foo.crt", Err("expected comma separated")),
            ("foo.crt,foo.key,bar", Err("expected comma separated")),
            (",foo.key", Err("expected comma separated")),
            ("foo.crt,foo.key:", Err("empty names list")),
            ("foo.crt,foo.key:a,,b", Err("\"\" is not a host name")),
            ("foo.crt,foo.key:a.*.com", Err("\"a.*.com\" is not a host name")),
        ] {
            match (text.parse::<SniCertKey>(), expected) {
                (Ok(read), Ok(expected)) => {
                    let files = (read.certificate.to_str(), read.key.to_str());
                    assert_eq!(files, (Some("foo.crt"), Some("foo.key")), "{text}");
                    let names: Vec<_> = read.names.iter().map(ToString::to_string).collect();
                    assert_eq!(names.join(" "), expected, "{text}");
                }
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{text}: {error}"),
                (read, expected) => panic!("{text}: {read:?}, expected {expected:?}"),
            }
        }
    }
}

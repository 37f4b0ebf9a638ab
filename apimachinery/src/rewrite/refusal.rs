//! Reads an error response of a kube-apiserver in any encoding. YAML with an alias is refused, because a kube-apiserver
//! never writes an alias.

use serde::Deserialize;

use super::{protobuf, yaml};
use crate::Status;

/// Returns the message of a body that is a Status in JSON, YAML or protobuf; `None` for any other body.
pub fn status_message(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct StatusText {
        kind: String,
        message: String,
    }
    if protobuf::is_protobuf(body) {
        return protobuf::status(body).map(|status| status.message).filter(|message| !message.is_empty());
    }
    let status: StatusText = serde_json::from_slice(&yaml::without_aliases_to_json(body).ok()?).ok()?;
    (status.kind == "Status").then_some(status.message)
}

/// Parses a body that is a Status in JSON, YAML or protobuf. Returns `None` for any other body.
pub fn read_status(body: &[u8]) -> Option<Status> {
    match protobuf::is_protobuf(body) {
        true => protobuf::status(body),
        false => Status::from_json(&yaml::without_aliases_to_json(body).ok()?),
    }
}

/// Parses a body that is a Status in protobuf; `None` for any other body.
pub fn parse_protobuf_status(body: &[u8]) -> Option<Status> {
    protobuf::status(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_field;

    #[test]
    fn status_message_is_read_from_json_yaml_and_protobuf() {
        let message = "pods \"x\" is forbidden";
        let json =
            serde_json::json!({"kind": "Status", "apiVersion": "v1", "message": message, "details": {"name": "y"}});
        let yaml = "apiVersion: v1\ndetails:\n  name: y\nkind: Status\nmessage: 'pods \"x\" is forbidden'\n";
        let mut status = Vec::new();
        put_field(&mut status, 3, message.as_bytes());
        put_field(&mut status, 5, b"\x0a\x01y");
        let protobuf = protobuf::encode_kind("Status", &status);
        for body in [json.to_string().as_bytes(), yaml.as_bytes(), &protobuf] {
            assert_eq!(status_message(body).as_deref(), Some(message), "{}", String::from_utf8_lossy(body));
        }
        for none in [&b""[..], b"k8s\0\xff", b"forbidden", br#"{"kind":"Pod","message":"x"}"#] {
            assert_eq!(status_message(none), None, "{}", String::from_utf8_lossy(none));
        }
    }

    #[test]
    fn yaml_with_aliases_is_not_a_status() {
        let status = "kind: Status\napiVersion: v1\ncode: 401\nmetadata: {}\nstatus: Failure\n";
        let one = format!("{status}message: &said Unauthorized\nreason: *said\n");
        // Each line repeats the alias of the previous line eight times. Three lines expand to 512 values, and each
        // additional line multiplies the number by eight.
        let eight = |of: &str| [of; 8].join(", ");
        let nested = format!("a: &a [{}]\nb: &b [{}]\nc: [{}]\n", eight("x"), eight("*a"), eight("*b"));
        let nested = format!("{status}message: Unauthorized\nreason: Unauthorized\n{nested}");
        for body in [one, nested] {
            assert!(Status::from_json(&yaml::to_json(body.as_bytes()).unwrap()).is_some(), "{body}");
            assert_eq!((status_message(body.as_bytes()), read_status(body.as_bytes())), (None, None), "{body}");
        }
    }

    #[test]
    fn status_is_read_from_json_yaml_and_protobuf() {
        let status = Status::unauthorized();
        let pretty = serde_json::to_string_pretty(&status).unwrap();
        let yaml = "apiVersion: v1\ncode: 401\nkind: Status\nmessage: Unauthorized\nmetadata: {}\nreason: \
                    Unauthorized\nstatus: Failure\n";
        let mut raw = Vec::new();
        put_field(&mut raw, 1, b"");
        put_field(&mut raw, 2, b"Failure");
        put_field(&mut raw, 3, b"Unauthorized");
        put_field(&mut raw, 4, b"Unauthorized");
        // Field 6 of a Status is its `code`. The varint has two bytes.
        raw.extend([6 << 3, 0x91, 0x03]);
        let protobuf = protobuf::encode_kind("Status", &raw);
        for body in [pretty.as_bytes(), yaml.as_bytes(), &status.to_json(), &protobuf] {
            assert_eq!(read_status(body).as_ref(), Some(&status), "{}", String::from_utf8_lossy(body));
        }
        for none in [&b""[..], b"Unauthorized", b"k8s\0\xff", br#"{"kind":"Pod","message":"Unauthorized"}"#] {
            assert_eq!(read_status(none), None, "{}", String::from_utf8_lossy(none));
        }
    }
}

//! Which form of answer a client asks for: the `Accept` header, clause by clause.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/negotiation/negotiate.go`. Clauses are tried by q, then in their
//! order; the first that can be given wins. Parameters that nobody knows are ignored, as KEP-5958 asks of servers.

use tributary_apimachinery::Status;

/// How bytes are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`; never for a watch.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`; for metadata alone.
    Protobuf,
}

impl Encoding {
    /// The `Content-Type` of an answer in this encoding.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The `Content-Type` of a stream of events in this encoding.
    pub fn stream_content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Yaml => self.content_type(),
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// Which shape objects are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The objects themselves.
    Object,
    /// `as=Table`: rows and cells for people.
    Table,
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`: metadata alone.
    PartialMetadata,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// How bytes are spelled.
    pub encoding: Encoding,
    /// Which shape objects are given.
    pub shape: Shape,
    /// Indented, for people.
    pub pretty: bool,
}

impl Form {
    /// Plain JSON, which everybody reads.
    pub const JSON: Self = Self { encoding: Encoding::Json, shape: Shape::Object, pretty: false };
}

/// What kind of answer is negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One object.
    Object,
    /// The answer to a question, which is stored nowhere and has no rows to print.
    Review,
    /// A list.
    List,
    /// A stream of events: JSON alone has a framing.
    Watch,
}

/// Chooses the form of an answer.
///
/// # Errors
/// 406 `NotAcceptable` with the list of what can be given.
pub fn negotiate(accept: Option<&str>, answer: Answer) -> Result<Form, Status> {
    let accept = accept.map(str::trim).filter(|accept| !accept.is_empty()).unwrap_or("*/*");
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses.iter().find_map(|clause| clause.form(answer)).ok_or_else(|| Status::not_acceptable(acceptable(answer)))
}

/// The media types that can be given.
fn acceptable(answer: Answer) -> &'static [&'static str] {
    match answer {
        Answer::Watch => &["application/json"],
        Answer::Object | Answer::Review | Answer::List => &["application/json", "application/yaml"],
    }
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    media_type: &'a str,
    shape: Option<&'a str>,
    group: Option<&'a str>,
    version: Option<&'a str>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Self { media_type: parts.next()?, shape: None, group: None, version: None, quality: 1.0 };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match key.trim() {
                "as" => clause.shape = Some(value),
                "g" => clause.group = Some(value),
                "v" => clause.version = Some(value),
                "q" => clause.quality = value.parse().unwrap_or(0.0),
                _ => {}
            }
        }
        (clause.quality > 0.0).then_some(clause)
    }

    fn form(&self, answer: Answer) -> Option<Form> {
        let encoding = match self.media_type {
            // kube-apiserver, too, takes `application/*` for none of its types.
            "application/json" | "*/*" => Encoding::Json,
            "application/yaml" if answer != Answer::Watch => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" => Encoding::Protobuf,
            _ => return None,
        };
        let meta = self.group.is_none_or(|group| group == "meta.k8s.io")
            && self.version.is_none_or(|version| matches!(version, "v1" | "v1beta1"));
        let shape = match (self.shape, answer) {
            (None, _) => Shape::Object,
            (Some("Table"), Answer::Object | Answer::List | Answer::Watch) if meta => Shape::Table,
            (Some("PartialObjectMetadata"), Answer::Object | Answer::Watch) if meta => Shape::PartialMetadata,
            (Some("PartialObjectMetadataList"), Answer::List) if meta => Shape::PartialMetadata,
            _ => return None,
        };
        if encoding == Encoding::Protobuf && shape != Shape::PartialMetadata {
            return None;
        }
        Some(Form { encoding, shape, pretty: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_clause_that_can_be_given_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let cases = [
            (None, Answer::List, Some((Encoding::Json, Shape::Object))),
            (Some(""), Answer::List, Some((Encoding::Json, Shape::Object))),
            (Some("*/*"), Answer::Watch, Some((Encoding::Json, Shape::Object))),
            (Some(table), Answer::List, Some((Encoding::Json, Shape::Table))),
            (Some(table), Answer::Review, Some((Encoding::Json, Shape::Object))),
            (Some("application/json;as=Table;v=v1;g=meta.k8s.io"), Answer::Review, None),
            (
                Some("application/vnd.kubernetes.protobuf,application/json"),
                Answer::List,
                Some((Encoding::Json, Shape::Object)),
            ),
            (Some("application/vnd.kubernetes.protobuf, */*"), Answer::Watch, Some((Encoding::Json, Shape::Object))),
            (Some("application/vnd.kubernetes.protobuf"), Answer::List, None),
            (Some("application/yaml"), Answer::List, Some((Encoding::Yaml, Shape::Object))),
            (Some("application/yaml"), Answer::Watch, None),
            (
                Some("application/json;q=0.9,application/yaml;q=1"),
                Answer::Object,
                Some((Encoding::Yaml, Shape::Object)),
            ),
            (
                Some("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
                Answer::List,
                Some((Encoding::Json, Shape::PartialMetadata)),
            ),
            (Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), Answer::List, None),
            (
                Some(
                    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                ),
                Answer::Watch,
                Some((Encoding::Protobuf, Shape::PartialMetadata)),
            ),
            (
                Some("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json"),
                Answer::List,
                Some((Encoding::Json, Shape::Object)),
            ),
            (Some("application/json;as=Table;g=nope;v=v1"), Answer::List, None),
            (Some("application/json;drop=metadata.managedFields"), Answer::List, Some((Encoding::Json, Shape::Object))),
            (Some("text/html"), Answer::List, None),
            (Some("application/*"), Answer::List, None),
            (Some("application/json;q=0"), Answer::List, None),
        ];
        for (accept, answer, expected) in cases {
            let got = negotiate(accept, answer).ok().map(|form| (form.encoding, form.shape));
            assert_eq!(got, expected, "{accept:?} {answer:?}");
        }
    }
}

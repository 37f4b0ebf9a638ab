//! Negotiation of an answer's form from the clauses of `Accept` and from the parameter `pretty`.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/negotiation/negotiate.go`, which uses goautoneg. Clauses are
//! sorted by quality `q` and by position, wildcards last. The first clause that Tributary can produce wins. Unknown
//! parameters are ignored, as KEP-5958 demands of servers.

mod clause;

pub use clause::Clause;

use http::{HeaderMap, HeaderValue, header};
use tributary_apimachinery::query::Query;
use tributary_apimachinery::{ClusterAnnotations, GroupVersionResource};
use tributary_printers::Printer;

/// CPU cost of YAML output: one byte of YAML takes as long to write as this number of JSON bytes takes to parse. JSON
/// is parsed at hundreds of MB/s, and YAML is written at about 10 MB/s.
const YAML_COST: usize = 16;

/// Reason for which no requested form is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAcceptable {
    /// `Accept` contains no media type that Tributary knows.
    Unknown {
        /// Media types that Tributary can produce.
        available: Vec<&'static str>,
    },
    /// `Accept` contains a known media type, but with parameters that the route does not offer, for example `as=`.
    Unavailable {
        /// Media types that Tributary can produce.
        available: Vec<&'static str>,
    },
    /// `Accept` asks for `PartialObjectMetadataList` for a single object, or for `PartialObjectMetadata` for a list.
    Shape {
        /// True if `Accept` asks for `PartialObjectMetadataList`, false if for `PartialObjectMetadata`.
        is_list_shape: bool,
        /// Go type of the object for kube-apiserver's message, for example `*core.Pod`.
        kind: String,
    },
}

/// Content of a Table's rows in addition to the cells (parameter `includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Rows contain cells only.
    None,
    /// Rows contain the object's metadata: the default.
    #[default]
    Metadata,
    /// Rows contain the whole object.
    Object,
}

impl IncludeObject {
    /// Parses the value of the parameter `includeObject`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// Encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`; not available for watches.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`; available only for `PartialObjectMetadata`.
    Protobuf,
}

impl Encoding {
    /// Encodings in the order in which a wildcard in `Accept` selects them.
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// Returns the `Content-Type` of an answer in this encoding.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the `Content-Type` of a watch's answer in this encoding.
    pub fn stream_content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Yaml => self.content_type(),
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// Version of the API group `meta.k8s.io` of a Table or PartialObjectMetadata. The two versions have equal fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`
    V1,
    /// `meta.k8s.io/v1beta1`
    V1Beta1,
}

impl MetaVersion {
    /// Returns the `apiVersion` of this version.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Representation of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Representation {
    /// Objects as they are stored.
    Object,
    /// `as=Table`: rows and cells for kubectl.
    Table(MetaVersion),
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`: objects without spec and status.
    PartialMetadata(MetaVersion),
}

/// Form of an answer: encoding, representation, indentation, compression, and the annotations with which the answer
/// names the cluster of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnswerForm {
    /// Encoding of the answer.
    pub encoding: Encoding,
    /// Representation of the objects.
    pub shape: Representation,
    /// True if JSON is indented for people.
    pub pretty: bool,
    /// True if the client accepts gzip. Watches are never compressed.
    pub gzip: bool,
    /// Annotations with which the answer names the cluster of each object.
    pub annotations: ClusterAnnotations,
}

impl AnswerForm {
    /// Plain JSON without indentation and compression.
    pub const JSON: Self = Self {
        encoding: Encoding::Json,
        shape: Representation::Object,
        pretty: false,
        gzip: false,
        annotations: ClusterAnnotations::Own,
    };

    /// Returns the CPU cost of converting `bytes` bytes of JSON to this form. The unit is the time to parse one byte of
    /// JSON. 0 if the bytes are copied unchanged.
    pub fn writing_cost(self, bytes: usize) -> usize {
        match self {
            Self { encoding: Encoding::Yaml, .. } => bytes.saturating_mul(YAML_COST),
            Self { pretty: true, .. } | Self { gzip: true, .. } => bytes,
            _ => 0,
        }
    }
}

/// Kind of an answer, which limits the available forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// A single object of a resource.
    Object,
    /// The answer to a review, for example a SubjectAccessReview. Reviews are not stored, and have no Table form.
    Review,
    /// A list of objects.
    List,
    /// A stream of watch events.
    Watch,
}

/// Preferences of a request for the form of its answer. A clone is cheap, because header values are reference-counted.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    accept: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    /// Value of the query parameter `pretty`, if the query has one.
    pretty: Option<bool>,
    gzip: bool,
    annotations: ClusterAnnotations,
}

impl Preferences {
    /// Reads the preferences from the headers and the query of a request. The query does not include the `?`.
    pub fn from_headers(headers: &HeaderMap, query: Option<&str>) -> Self {
        Self {
            accept: headers.get(header::ACCEPT).cloned(),
            user_agent: headers.get(header::USER_AGENT).cloned(),
            // Most queries contain neither `pretty` nor an escape, and need no parsing.
            pretty: query
                .filter(|query| query.contains("pretty") || query.contains('%'))
                .and_then(|query| pretty(&Query::parse(Some(query)))),
            gzip: accepts_gzip(headers),
            annotations: ClusterAnnotations::Own,
        }
    }

    /// Sets the annotations with which the answer names the cluster of each object. They depend on the client's door.
    #[must_use]
    pub fn with_annotations(self, annotations: ClusterAnnotations) -> Self {
        Self { annotations, ..self }
    }

    /// Checks that `Accept` contains a media type that the route of the resource offers. Parameters of the media type
    /// do not matter here: for built-in kinds, kube-apiserver checks media types first and parameters later.
    ///
    /// # Errors
    /// [`NotAcceptable`] with the available media types.
    pub fn fits_route(&self, answer: ResponseKind, resource: &GroupVersionResource) -> Result<(), NotAcceptable> {
        if names_a_known_type(self.accept()) || !is_routed(resource) {
            return Ok(());
        }
        Err(NotAcceptable::Unknown { available: representations(answer).to_vec() })
    }

    /// Checks `Accept` like [`fits_route`](Self::fits_route), for a route that offers only JSON.
    ///
    /// # Errors
    /// [`NotAcceptable`] if `Accept` does not allow JSON.
    pub fn fits_json_route(&self) -> Result<(), NotAcceptable> {
        let offered = [Encoding::Json.content_type()];
        if names_one_of(self.accept(), &offered) {
            return Ok(());
        }
        Err(NotAcceptable::Unknown { available: offered.to_vec() })
    }

    /// Chooses the form of an answer.
    ///
    /// # Errors
    /// [`NotAcceptable`] with the available media types, if no clause of `Accept` can be satisfied.
    pub fn form(&self, answer: ResponseKind) -> Result<AnswerForm, NotAcceptable> {
        let accept = self.accept();
        let chosen =
            if accept.is_empty() { Some(Chosen::JSON) } else { choose(accept, answer != ResponseKind::Review) };
        let chosen = chosen
            .ok_or_else(|| NotAcceptable::Unavailable { available: representations(ResponseKind::Object).to_vec() })?;
        let is_watch = answer == ResponseKind::Watch;
        Ok(AnswerForm {
            encoding: chosen.encoding,
            shape: chosen.shape,
            pretty: !is_watch && self.is_pretty(chosen),
            gzip: !is_watch && self.gzip,
            annotations: self.annotations,
        })
    }

    /// Checks that the form fits the answer: a watch cannot be YAML, a list cannot be a `PartialObjectMetadata`, and
    /// other answers cannot be a `PartialObjectMetadataList`. kube-apiserver checks this only after it has the answer.
    /// `kind` is the kind of the resource's objects, for the message.
    ///
    /// # Errors
    /// [`NotAcceptable`] if the form does not fit.
    pub fn fits(
        &self,
        form: AnswerForm,
        answer: ResponseKind,
        resource: &GroupVersionResource,
        kind: &str,
    ) -> Result<(), NotAcceptable> {
        if answer == ResponseKind::Watch && form.encoding == Encoding::Yaml {
            return Err(NotAcceptable::Unavailable { available: vec!["application/json;stream=watch"] });
        }
        if !matches!(form.shape, Representation::PartialMetadata(_)) {
            return Ok(());
        }
        let is_list_shape = choose(self.accept(), true).is_some_and(|chosen| chosen.is_list_shape);
        if is_list_shape == (answer == ResponseKind::List) {
            return Ok(());
        }
        Err(NotAcceptable::Shape { is_list_shape, kind: go_type(resource, kind) })
    }

    /// Returns the form of an error answer: the requested encoding if errors support it, else indented JSON.
    pub fn error_form(&self) -> AnswerForm {
        let accept = self.accept();
        match if accept.is_empty() { Some(Chosen::JSON) } else { choose(accept, false) } {
            Some(chosen) => {
                AnswerForm { encoding: chosen.encoding, pretty: self.is_pretty(chosen), ..AnswerForm::JSON }
            }
            None => AnswerForm { pretty: true, ..AnswerForm::JSON },
        }
    }

    fn accept(&self) -> &str {
        // Stands for an `Accept` header that is not valid UTF-8. It matches no media type, whereas an empty text would
        // match all.
        const UNKNOWN: &str = "\u{fffd}";
        self.accept.as_ref().map_or("", |value| std::str::from_utf8(value.as_bytes()).unwrap_or(UNKNOWN))
    }

    /// Returns whether to indent JSON: if the client requests it, and by default for curl, wget and browsers.
    fn is_pretty(&self, chosen: Chosen) -> bool {
        chosen.pretty
            || self.pretty.unwrap_or_else(|| {
                let agent = self.user_agent.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
                ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
            })
    }
}

/// Reads the parameter `pretty`. The result is true for the values that Go's `ParseBool` reads as true, `None` for an
/// empty value, and false for all other values.
fn pretty(query: &Query<'_>) -> Option<bool> {
    let value = query.get("pretty").filter(|value| !value.is_empty())?;
    Some(matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Returns whether `Accept-Encoding` allows gzip. Only the coding `gzip` matters, not the wildcard `*`. A `q=0` refuses
/// gzip.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && !matches!(parameters.trim(), "q=0" | "q=0.0")
    })
}

/// Returns whether `Accept` contains a media type that kube-apiserver offers for built-in kinds, with any parameters.
/// kube-apiserver's routes of built-in kinds check this first (go-restful's `Route.matchesAccept`), and do not accept
/// `application/*`.
pub fn names_a_known_type(accept: &str) -> bool {
    names_one_of(accept, &Encoding::ALL.map(Encoding::content_type))
}

/// Checks like [`names_a_known_type`], for a route that offers only the media types in `offered`.
pub(crate) fn names_one_of(accept: &str, offered: &[&str]) -> bool {
    accept.is_empty()
        || accept.split(',').any(|part| {
            let media_type = part.split(';').next().unwrap_or_default().trim_matches(' ');
            media_type == "*/*" || offered.contains(&media_type)
        })
}

/// Returns whether kube-apiserver checks the media types of the resource already in its route. The common handler of
/// custom resources and of aggregated servers has no such check.
pub fn is_routed(resource: &GroupVersionResource) -> bool {
    Printer::for_resource(resource).is_some()
}

/// Returns the internal Go type of the kind for kube-apiserver's message, for example `*core.Pod`.
fn go_type(resource: &GroupVersionResource, kind: &str) -> String {
    if !resource.is_built_in() {
        return "*unstructured.Unstructured".to_owned();
    }
    let package = match resource.group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        "internal" => "apiserverinternal",
        package => package,
    };
    format!("*{package}.{kind}")
}

/// Returns the media types available for an answer. Lists and watches have the same route in kube-apiserver, so they
/// have the same media types.
fn representations(answer: ResponseKind) -> &'static [&'static str] {
    match answer {
        ResponseKind::Object | ResponseKind::Review => &["application/json", "application/yaml"],
        ResponseKind::List | ResponseKind::Watch => {
            &["application/json", "application/yaml", "application/json;stream=watch"]
        }
    }
}

/// Form selected by a single clause of `Accept`.
#[derive(Clone, Copy)]
struct Chosen {
    encoding: Encoding,
    shape: Representation,
    /// True for `PartialObjectMetadataList`.
    is_list_shape: bool,
    pretty: bool,
}

impl Chosen {
    const JSON: Self =
        Self { encoding: Encoding::Json, shape: Representation::Object, is_list_shape: false, pretty: false };
}

/// Returns the form of the first clause that Tributary can produce. `transforms` is false for errors and reviews, which
/// have no Table or metadata form.
fn choose(accept: &str, transforms: bool) -> Option<Chosen> {
    let clauses = Clause::parse_all(accept);
    clauses.iter().find_map(|clause| {
        let mut fitting = Encoding::ALL.into_iter().filter(|encoding| clause.names(encoding.content_type()));
        fitting.find_map(|encoding| answer_clause(clause, encoding, transforms))
    })
}

fn answer_clause(clause: &Clause<'_>, encoding: Encoding, transforms: bool) -> Option<Chosen> {
    let (mut kind, mut group, mut version) = (None, "", "");
    let mut pretty = false;
    for (name, value) in clause.parameters() {
        match name {
            "as" => kind = Some(value),
            "g" => group = value,
            "v" => version = value,
            "stream" if encoding == Encoding::Yaml || value != "watch" => return None,
            "sv" if !transforms || value != "v1" => return None,
            "pretty" => pretty = value == "1",
            _ => {}
        }
    }
    if kind.is_none() && group.is_empty() && version.is_empty() {
        return (encoding != Encoding::Protobuf).then_some(Chosen { encoding, pretty, ..Chosen::JSON });
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    let (shape, is_list_shape) = match kind {
        Some("Table") => (Representation::Table(version), false),
        Some("PartialObjectMetadata") => (Representation::PartialMetadata(version), false),
        Some("PartialObjectMetadataList") => (Representation::PartialMetadata(version), true),
        _ => return None,
    };
    // Protobuf is available for PartialObjectMetadata only.
    let can_be_written = encoding != Encoding::Protobuf || shape == Representation::PartialMetadata(MetaVersion::V1);
    (transforms && can_be_written).then_some(Chosen { encoding, shape, is_list_shape, pretty })
}

#[cfg(test)]
mod tests;

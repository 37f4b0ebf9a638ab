//! What a request asks for, read from its method, path and query.
//!
//! Follows kube-apiserver's `endpoints/request/requestinfo.go`, with two differences: a prefix `/clusters/<name>`, or a
//! host of its own ([`Mount`]), addresses one cluster, and a path or query that some hop or member could read
//! differently than it is read here is refused instead of guessed at. Authorization and routing both rest on this one
//! reading, so nothing is ever normalised.

pub mod kube_apiserver_paths;
pub mod requested_resource;

use std::borrow::Cow;
use std::fmt;

use crate::query::{Query, check_one_reading, escapes_are_valid};
use crate::selector::FieldSelector;
use crate::{ClusterName, GroupVersionResource, Mount, ObjectKey, Status};

/// What the client wants done, in the words of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection, or one object.
    Watch,
    /// Make an object, or post to a subresource.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
    /// The lower-case method of a request for no resource, and one of HTTP that no resource knows; empty for any other.
    NonResource(&'static str),
}

impl Verb {
    /// The verbs of requests for resources.
    pub const OF_RESOURCES: [Self; 8] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
    ];

    /// The verb as RBAC writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::NonResource(method) => method,
        }
    }

    /// The verb as kube-apiserver's metrics write it (apiserver `pkg/endpoints/metrics/metrics.go`): upper case, with
    /// the methods `POST` and `PUT` for [`Create`](Self::Create) and [`Update`](Self::Update). Empty for any method
    /// that is none of HTTP's.
    pub fn in_metrics(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::List => "LIST",
            Self::Watch => "WATCH",
            Self::Create => "POST",
            Self::Update => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::DeleteCollection => "DELETECOLLECTION",
            Self::NonResource(method) => {
                let known = METHODS.iter().find(|(_, known)| *known == method);
                known.map_or("", |(upper_case, _)| upper_case)
            }
        }
    }

    /// Whether the request reads and changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch | Self::NonResource("get" | "head"))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The cluster that the path's prefix, or the host, names; `None` for the merged view.
    pub cluster: Option<ClusterName>,
    /// The Kubernetes path: what follows the prefix, byte for byte, because it is forwarded as it came.
    pub path: String,
    /// What is wanted.
    pub verb: Verb,
    /// Of what.
    pub target: RequestTarget,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// An object, a collection or a subresource.
    Resource(ResourceRequest),
    /// Discovery, health, OpenAPI and every other path.
    NonResource,
}

/// How long the answer to a request may take. It decides on which connections the request travels and
/// whether it has a time limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestClass {
    /// The answer comes within the time that kube-apiserver gives a request.
    #[default]
    Short,
    /// A stream of events, which goes on until somebody ends it.
    Watch,
    /// Bytes that are no object's, of a node, a workload or a profile: the answer may begin late and go on for hours.
    Opaque,
}

impl RequestClass {
    /// Whether kube-apiserver exempts the request from its time limit: "long-running" are there watches, too.
    pub fn is_long_running(self) -> bool {
        self != Self::Short
    }
}

/// Subresources whose bytes are no objects: they come from a node or a workload, and pass untouched.
const OPAQUE_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A request for an object, a collection or a subresource. Texts are decoded and never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// The resource.
    pub resource: GroupVersionResource,
    /// The namespace of a namespaced request. `None` for a request on a namespace itself, which is cluster-scoped; see
    /// [`Self::authorization_namespace`].
    pub namespace: Option<String>,
    /// The name in the path.
    pub name: Option<String>,
    /// The subresource: `status`, `log`, `proxy`, …
    pub subresource: Option<String>,
    /// What follows the subresource and its slash, raw. After `proxy` this is a path of the proxied server, and
    /// `Some("")` is its root.
    pub rest: Option<String>,
    /// The name that a collection's field selector `metadata.name=…` asks for. Authorization treats it as a name.
    pub selected_name: Option<String>,
}

impl ResourceRequest {
    /// Whether the bytes of its subresource are no object's (`log`, `exec`, `proxy`, …).
    pub fn is_opaque(&self) -> bool {
        self.subresource.as_deref().is_some_and(|subresource| OPAQUE_SUBRESOURCES.contains(&subresource))
    }

    /// The key of the object in the path; the name in it is empty for a collection.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_deref().unwrap_or_default(), self.name.as_deref().unwrap_or_default())
    }

    /// The namespace by which the request is authorized: a request on a namespace itself counts as one in it, so that a
    /// Role can allow it. A kube-apiserver reads that from the path, and looks at no group: what is called `namespaces`
    /// in another one counts so, too.
    pub fn authorization_namespace(&self) -> &str {
        match (&self.namespace, &self.name) {
            (Some(namespace), _) => namespace,
            (None, Some(name)) if &*self.resource.resource == "namespaces" => name,
            _ => "",
        }
    }

    /// The name by which the request is authorized: the path's, or the one that a field selector asks for.
    pub fn authorization_name(&self) -> &str {
        self.name.as_deref().or(self.selected_name.as_deref()).unwrap_or_default()
    }
}

impl RequestInfo {
    /// Reads a request to the merged view's hosts, as [`parse_at`](Self::parse_at) does.
    ///
    /// # Errors
    /// As [`parse_at`](Self::parse_at).
    pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Self, Status> {
        Self::parse_at(&Mount::Merged, method, path, query)
    }

    /// Reads a request. `mount` is what its host has at the root, `method` is upper case, `path` begins with a slash
    /// and is percent-encoded as it came, `query` is without its `?`.
    ///
    /// # Errors
    /// * 400 `BadRequest` for what is malformed: escapes that are none, text that is not UTF-8, control characters but
    ///   in an object's name, `%` in a segment; of a request for a resource also in its query, and for one that is not
    ///   read the same by everybody ([`check_one_reading`]). What passes untouched (`proxy`, `exec`, …) has a query of
    ///   its receiver's own, by which nothing is decided here.
    /// * 404 `NotFound` for what is well-formed and can name nothing: empty segments (one slash at the end is ignored),
    ///   `.` and `..`, encoded slashes, `\` but in an object's name, a cluster that cannot be a cluster's name.
    ///
    /// The names of RBAC objects may have any character but `/` and `%`. Refused of these are names in which some hop
    /// could see more than one segment: with `.` or `..` beside a backslash, or with NUL, CR or LF.
    pub fn parse_at(mount: &Mount, method: &str, path: &str, query: Option<&str>) -> Result<Self, Status> {
        let (cluster, path) = mount.split(path)?;
        let mut segments = Segments::new(path)?;
        let parsed = parse_target(&mut segments)?;
        let (verb, target) = match parsed {
            None => (non_resource_verb(method), RequestTarget::NonResource),
            Some((legacy_watch, mut request)) => {
                if !request.is_opaque() {
                    check_one_reading(query)?;
                }
                let verb = resource_verb(method, &mut request, legacy_watch, query);
                (verb, RequestTarget::Resource(request))
            }
        };
        Ok(Self { cluster, path: path.to_owned(), verb, target })
    }

    /// The verb as kube-apiserver has it (apiserver `pkg/endpoints/request/requestinfo.go`), for policies: of a method
    /// that a resource's path does not know the verb that it would be of another path, else the empty text.
    pub fn requested_verb(&self) -> &'static str {
        match (&self.target, self.verb) {
            (RequestTarget::NonResource, verb) => verb.as_str(),
            (RequestTarget::Resource(_), Verb::NonResource("post")) => Verb::Create.as_str(),
            (RequestTarget::Resource(_), Verb::NonResource("put")) => Verb::Update.as_str(),
            (RequestTarget::Resource(_), Verb::NonResource("patch")) => Verb::Patch.as_str(),
            (RequestTarget::Resource(_), Verb::NonResource(_)) => "",
            (RequestTarget::Resource(_), verb) => verb.as_str(),
        }
    }

    /// How long the answer may take, as kube-apiserver tells it (`genericfilters.BasicLongRunningRequestCheck`).
    pub fn class(&self) -> RequestClass {
        match &self.target {
            _ if self.verb == Verb::Watch => RequestClass::Watch,
            RequestTarget::Resource(request) if request.is_opaque() => RequestClass::Opaque,
            RequestTarget::NonResource if self.path.starts_with("/debug/pprof/") => RequestClass::Opaque,
            _ => RequestClass::Short,
        }
    }

    /// Whether a node or a workload reads the request, to which its server passes it on whole: `proxy`.
    pub fn is_for_workload(&self) -> bool {
        self.resource().is_some_and(|request| request.subresource.as_deref() == Some("proxy"))
    }

    /// The resource request, where it is one.
    pub fn resource(&self) -> Option<&ResourceRequest> {
        match &self.target {
            RequestTarget::Resource(request) => Some(request),
            RequestTarget::NonResource => None,
        }
    }
}

/// Reads the path's segments up to the subresource; the flag tells a deprecated `/watch/` path.
/// `None` for a path that is no resource's.
fn parse_target(segments: &mut Segments<'_>) -> Result<Option<(bool, ResourceRequest)>, Status> {
    let group = match segments.next()?.as_deref() {
        Some("api") => Cow::Borrowed(""),
        Some("apis") => match segments.next()? {
            Some(group) => group,
            None => return Ok(None),
        },
        _ => {
            segments.check_all()?;
            return Ok(None);
        }
    };
    let (Some(version), Some(mut resource)) = (segments.next()?, segments.next()?) else {
        return Ok(None);
    };
    // The verb `proxy` in a path is long gone from Kubernetes; an authorizer that still knew it would
    // read the path anew.
    let legacy_watch = resource == "watch";
    if legacy_watch {
        resource = segments.next()?.ok_or_else(Status::path_not_found)?;
    }
    if resource == "proxy" || (legacy_watch && resource == "watch") {
        return Err(Status::path_not_found());
    }
    let mut namespace = None;
    let mut name = if resource == "namespaces" { segments.next()? } else { segments.next_name()? };
    let mut subresource = segments.next()?;
    if resource == "namespaces"
        && let Some(inner) = subresource.take_if(|inner| !matches!(&**inner, "status" | "finalize"))
    {
        resource = inner;
        namespace = name;
        (name, subresource) = (segments.next_name()?, segments.next()?);
    }
    if legacy_watch && subresource.is_some() {
        return Err(Status::path_not_found());
    }
    let rest = match subresource.as_deref() {
        Some("proxy") => segments.proxied()?,
        Some(_) => segments.remaining_path()?,
        None => None,
    };
    let request = ResourceRequest {
        resource: GroupVersionResource::new(&group, &version, &resource),
        namespace: namespace.map(Cow::into_owned),
        name: name.map(Cow::into_owned),
        subresource: subresource.map(Cow::into_owned),
        rest: rest.map(str::to_owned),
        selected_name: None,
    };
    Ok(Some((legacy_watch, request)))
}

fn resource_verb(method: &str, request: &mut ResourceRequest, legacy_watch: bool, query: Option<&str>) -> Verb {
    let named = request.name.is_some();
    match method {
        "GET" | "HEAD" if legacy_watch => Verb::Watch,
        _ if legacy_watch => non_resource_verb(method),
        "GET" | "HEAD" if named => Verb::Get,
        "GET" | "HEAD" => {
            let query = Query::parse(query);
            request.selected_name = selected_name(&query);
            if query.bool("watch") == Some(true) { Verb::Watch } else { Verb::List }
        }
        "POST" if !named || request.subresource.is_some() => Verb::Create,
        "PUT" if named => Verb::Update,
        "PATCH" if named => Verb::Patch,
        "DELETE" if named => Verb::Delete,
        "DELETE" => Verb::DeleteCollection,
        _ => non_resource_verb(method),
    }
}

/// The name that the field selector asks for, if it can be one.
fn selected_name(query: &Query<'_>) -> Option<String> {
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    selector.requires_exact_match("metadata.name").filter(|name| is_path_segment_name(name)).map(str::to_owned)
}

/// Whether the text can be a name in a path (`IsPathSegmentName` in apimachinery), and is not empty.
pub fn is_path_segment_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// HTTP's methods (RFC 9110, 9.3, and PATCH of RFC 5789), each with the verb of a request for no resource that has it.
pub const METHODS: [(&str, &str); 9] = [
    ("GET", "get"),
    ("HEAD", "head"),
    ("POST", "post"),
    ("PUT", "put"),
    ("PATCH", "patch"),
    ("DELETE", "delete"),
    ("OPTIONS", "options"),
    ("CONNECT", "connect"),
    ("TRACE", "trace"),
];

fn non_resource_verb(method: &str) -> Verb {
    let known = METHODS.iter().find(|(known, _)| *known == method);
    Verb::NonResource(known.map_or("", |(_, verb)| verb))
}

/// The segments of a path, decoded and checked one by one as they are asked for. Nothing is copied but what was
/// escaped.
struct Segments<'a> {
    /// What follows the slash after the last segment read; `None` when the last one had no slash after it.
    remaining: Option<&'a str>,
    /// Whether each segment says what it means: nothing in the path is escaped, no backslash, nothing beyond ASCII.
    /// Nearly all paths are so.
    is_plain: bool,
}

impl<'a> Segments<'a> {
    fn new(path: &'a str) -> Result<Self, Status> {
        let remaining =
            path.strip_prefix('/').ok_or_else(|| Status::bad_request("the path must begin with a slash"))?;
        // To the end in any case: so the bytes are looked at many at a time.
        let (mut is_malformed, mut is_plain) = (false, true);
        for byte in remaining.bytes() {
            is_malformed |= byte.is_ascii_control() || matches!(byte, b' ' | b'#' | b'?');
            is_plain &= byte.is_ascii() && !matches!(byte, b'%' | b'\\');
        }
        if is_malformed {
            return Err(Status::bad_request("the path has a character that must be percent-encoded"));
        }
        if !is_plain && !escapes_are_valid(remaining) {
            return Err(Status::bad_request("the path has an invalid percent escape"));
        }
        Ok(Self { remaining: Some(remaining), is_plain })
    }

    /// The next segment, decoded. `None` at the end, before which one slash may stand.
    fn next(&mut self) -> Result<Option<Cow<'a, str>>, Status> {
        self.next_checked(check_word)
    }

    /// Takes the next segment as the name of an object, which may have more characters than [`next`](Self::next)
    /// allows.
    fn next_name(&mut self) -> Result<Option<Cow<'a, str>>, Status> {
        self.next_checked(check_name)
    }

    fn next_checked(&mut self, check: fn(&str, &str) -> Result<(), Status>) -> Result<Option<Cow<'a, str>>, Status> {
        let Some(remaining) = self.remaining.filter(|remaining| !remaining.is_empty()) else {
            return Ok(None);
        };
        let raw = match remaining.split_once('/') {
            Some((raw, after)) => {
                self.remaining = Some(after);
                raw
            }
            None => {
                self.remaining = None;
                remaining
            }
        };
        let segment = if self.is_plain { Cow::Borrowed(raw) } else { decode_segment(raw, check)? };
        if matches!(&*segment, "" | "." | "..") {
            return Err(Status::path_not_found());
        }
        Ok(Some(segment))
    }

    /// Checks every segment that is left.
    fn check_all(&mut self) -> Result<(), Status> {
        while self.next()?.is_some() {}
        Ok(())
    }

    /// What is left, raw, each segment checked; `None` if nothing is.
    fn remaining_path(&mut self) -> Result<Option<&'a str>, Status> {
        let rest = self.remaining.filter(|rest| !rest.is_empty());
        self.check_all()?;
        Ok(rest)
    }

    /// What is left for a proxied server: raw and free in everything but segments that some hop may take for `.` or
    /// `..` (also after decoding once more than it should) and characters that no text has.
    fn proxied(&mut self) -> Result<Option<&'a str>, Status> {
        let Some(rest) = self.remaining.take() else {
            return Ok(None);
        };
        let once = decode_text(rest)?;
        let twice = percent_encoding::percent_decode_str(&once).decode_utf8_lossy();
        for text in [rest, &once, &twice] {
            if text.split(['/', '\\']).any(|segment| segment == "." || segment == "..") {
                return Err(Status::path_not_found());
            }
        }
        Ok(Some(rest))
    }
}

/// Decodes a segment that may have escapes. `check` gets the raw and the decoded text, and refuses a segment that hops
/// could read in different ways. `.` and `..` are not checked.
fn decode_segment(raw: &str, check: fn(&str, &str) -> Result<(), Status>) -> Result<Cow<'_, str>, Status> {
    let text = decode_utf8(raw)?;
    check(raw, &text)?;
    if text.contains('%') {
        return Err(Status::bad_request(format!("Name parameter invalid: {text:?}: may not contain '%'")));
    }
    if text.contains('/') {
        return Err(Status::path_not_found());
    }
    Ok(text)
}

/// Refuses a group, version, resource, namespace or subresource that no cluster can have.
fn check_word(_: &str, text: &str) -> Result<(), Status> {
    check_controls(text)?;
    if text.contains('\\') { Err(Status::path_not_found()) } else { Ok(()) }
}

/// Refuses a name that a hop on the way to the kube-apiserver could read as more than one segment.
///
/// A kube-apiserver allows any character but `/` and `%` (`IsValidPathSegmentName` in apimachinery), and RBAC objects
/// have such names (`CORP\ann`). Refused are a backslash without an escape, `.` and `..` beside a backslash, and the
/// characters that end a text or a line (NUL, CR and LF).
fn check_name(raw: &str, text: &str) -> Result<(), Status> {
    if text.contains(['\0', '\r', '\n']) {
        return Err(Status::bad_request("the name in the path has a control character that ends a line or a text"));
    }
    let leads_elsewhere = text.contains('\\') && text.split('\\').any(|part| matches!(part, "." | ".."));
    if raw.contains('\\') || leads_elsewhere { Err(Status::path_not_found()) } else { Ok(()) }
}

fn check_controls(text: &str) -> Result<(), Status> {
    if text.chars().any(char::is_control) {
        return Err(Status::bad_request("the path has a control character"));
    }
    Ok(())
}

/// Decodes a part of a path that a proxied server reads.
fn decode_text(raw: &str) -> Result<Cow<'_, str>, Status> {
    let text = decode_utf8(raw)?;
    check_controls(&text)?;
    Ok(text)
}

fn decode_utf8(raw: &str) -> Result<Cow<'_, str>, Status> {
    let decoded = percent_encoding::percent_decode_str(raw).decode_utf8();
    decoded.map_err(|_| Status::bad_request("the path is not UTF-8"))
}

#[cfg(test)]
mod tests;

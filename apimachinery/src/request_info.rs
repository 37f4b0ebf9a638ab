//! Parses a request's method, path and query.
//!
//! The rules are those of kube-apiserver's `endpoints/request/requestinfo.go`, with two differences. First, a path
//! prefix such as `/clusters/<name>`, or the host of a cluster ([`Mount`]), addresses a cluster. Second, a path or
//! query that a proxy or member could read differently is refused. Authorization and routing use the same parsed
//! request, and the path is forwarded without a normalisation.

pub mod kube_apiserver_paths;
pub mod requested_resource;

use std::borrow::Cow;
use std::fmt;

use crate::query::{Query, check_unambiguous, escapes_are_valid};
use crate::selector::FieldSelector;
use crate::{ClusterName, GroupVersionResource, Mount, MountTarget, Mounted, ObjectKey, Status};

/// The verb of a request, in the terms of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read an object.
    Get,
    /// Read a collection.
    List,
    /// Watch a collection or an object.
    Watch,
    /// Create an object, or post to a subresource.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Delete a single object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
    /// The HTTP method in lower case, if the request has no resource, or if resources do not support the method. Empty
    /// for an unknown method.
    NonResource(&'static str),
}

impl Verb {
    /// The verbs of requests whose path names a resource.
    pub const RESOURCE_VERBS: [Self; 8] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
    ];

    /// Returns the verb's name in RBAC rules.
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

    /// Returns the verb as kube-apiserver's metrics spell it (apiserver `pkg/endpoints/metrics/metrics.go`): upper
    /// case, with the methods `POST` and `PUT` for [`Create`](Self::Create) and [`Update`](Self::Update). Empty for an
    /// unknown method.
    pub fn metric_label(self) -> &'static str {
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

    /// Returns whether the request is a read.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch | Self::NonResource("get" | "head"))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The cluster of the path prefix or of the host; `None` for the merged view, and for the aggregated entry itself.
    pub cluster: Option<ClusterName>,
    /// The Kubernetes path after the prefix. The path is forwarded byte for byte.
    pub path: String,
    /// The verb of the request.
    pub verb: Verb,
    /// The resource of the request, if any.
    pub target: RequestTarget,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// An object, a collection or a subresource.
    Resource(ResourceRequest),
    /// A path without a resource, such as the paths of discovery, health checks and OpenAPI.
    NonResource,
}

/// The expected duration of a response. The class determines the connections for the request, and whether the request
/// has a time limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestClass {
    /// The response arrives within kube-apiserver's time limit. The class of all requests except watches and streams.
    #[default]
    Short,
    /// A watch: a response without a fixed end.
    Watch,
    /// A byte stream of a node or a workload, or the recording of a CPU profile. The response may begin late and last
    /// for hours.
    Streamed,
}

impl RequestClass {
    /// Returns whether kube-apiserver exempts the request from its time limit. Watches are included in kube-apiserver's
    /// "long-running" requests.
    pub fn is_long_running(self) -> bool {
        self != Self::Short
    }
}

/// The subresources with byte streams of a node or a workload, which are forwarded unchanged.
const STREAMED_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A request for an object, a collection or a subresource. Names are decoded and never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// The requested resource.
    pub resource: GroupVersionResource,
    /// The namespace of a namespaced request. `None` for a request for a Namespace itself, which is cluster-scoped; see
    /// [`Self::authorization_namespace`].
    pub namespace: Option<String>,
    /// The object's name in the path.
    pub name: Option<String>,
    /// The subresource: `status`, `log`, `proxy`, …
    pub subresource: Option<String>,
    /// The raw path after the subresource and its slash. For the subresource `proxy`, this is the path on the proxied
    /// server, and `Some("")` is its root.
    pub rest: Option<String>,
    /// The name in a collection's field selector `metadata.name=…`, which authorization treats as a name in the path.
    pub selected_name: Option<String>,
}

impl ResourceRequest {
    /// Returns whether the subresource is a byte stream (`log`, `exec`, `proxy`, …).
    pub fn is_streamed(&self) -> bool {
        self.subresource.as_deref().is_some_and(|subresource| STREAMED_SUBRESOURCES.contains(&subresource))
    }

    /// Returns the key of the object in the path; the name is empty for a collection.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_deref().unwrap_or_default(), self.name.as_deref().unwrap_or_default())
    }

    /// Returns the namespace for authorization. A request for a Namespace itself is authorized in that namespace, so
    /// that a Role can allow it. Like kube-apiserver, this function ignores the API group, so it treats a resource
    /// `namespaces` of any group in this way.
    pub fn authorization_namespace(&self) -> &str {
        match (&self.namespace, &self.name) {
            (Some(namespace), _) => namespace,
            (None, Some(name)) if &*self.resource.resource == "namespaces" => name,
            _ => "",
        }
    }

    /// Returns the name for authorization: the name in the path or in a field selector.
    pub fn authorization_name(&self) -> &str {
        self.name.as_deref().or(self.selected_name.as_deref()).unwrap_or_default()
    }
}

impl RequestInfo {
    /// Parses a request to a host of the merged view, like [`parse_at`](Self::parse_at).
    ///
    /// # Errors
    /// The errors of [`parse_at`](Self::parse_at).
    pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Self, Status> {
        Self::parse_at(&Mount::Merged, method, path, query)
    }

    /// Parses a request. `mount` is the API at the root of the request's host, `method` is upper case, `path` begins
    /// with a slash and is percent-encoded as received, `query` is without its `?`.
    ///
    /// # Errors
    /// The errors of [`Mount::resolve`] and of [`parse_mounted`](Self::parse_mounted).
    pub fn parse_at(mount: &Mount, method: &str, path: &str, query: Option<&str>) -> Result<Self, Status> {
        Self::parse_mounted(mount.resolve(path)?, method, query)
    }

    /// Parses a request whose path is resolved. `method` is upper case, `query` is without its `?`. Only the inner path
    /// is parsed.
    ///
    /// # Errors
    /// * 400 `BadRequest` for a malformed request: invalid escapes, invalid UTF-8, control characters except in an
    ///   object's name, `%` in a segment; for a resource also a query that programs read differently
    ///   ([`check_unambiguous`]). The query of a forwarded byte stream (`proxy`, `exec`, …) belongs to its receiver and
    ///   is not checked.
    /// * 404 `NotFound` for a well-formed path that cannot name a resource: empty segments (a slash at the end is
    ///   ignored), `.` and `..`, encoded slashes, `\` except in an object's name.
    ///
    /// The names of RBAC objects may have any character except `/` and `%`. Names that a proxy could read as several
    /// segments are refused: names with `.` or `..` beside a backslash, or with NUL, CR or LF.
    pub fn parse_mounted(mounted: Mounted<'_>, method: &str, query: Option<&str>) -> Result<Self, Status> {
        let Mounted { target, inner: path, .. } = mounted;
        let cluster = match target {
            MountTarget::Cluster(cluster) => Some(cluster),
            MountTarget::Merged | MountTarget::Entry => None,
        };
        let mut segments = Segments::new(path)?;
        let parsed = parse_target(&mut segments)?;
        let (verb, target) = match parsed {
            None => (non_resource_verb(method), RequestTarget::NonResource),
            Some((legacy_watch, mut request)) => {
                if !request.is_streamed() {
                    check_unambiguous(query)?;
                }
                let verb = resource_verb(method, &mut request, legacy_watch, query);
                (verb, RequestTarget::Resource(request))
            }
        };
        Ok(Self { cluster, path: path.to_owned(), verb, target })
    }

    /// Returns the verb as kube-apiserver computes it for policies (apiserver `pkg/endpoints/request/requestinfo.go`).
    /// If the resource's path does not support the method, the result is the verb that the method has on other paths,
    /// or empty.
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

    /// Returns the expected duration of the response, according to kube-apiserver
    /// (`genericfilters.BasicLongRunningRequestCheck`).
    pub fn class(&self) -> RequestClass {
        match &self.target {
            _ if self.verb == Verb::Watch => RequestClass::Watch,
            RequestTarget::Resource(request) if request.is_streamed() => RequestClass::Streamed,
            RequestTarget::NonResource if self.path.starts_with("/debug/pprof/") => RequestClass::Streamed,
            _ => RequestClass::Short,
        }
    }

    /// Returns whether the member forwards the request to a node or a workload (`proxy`).
    pub fn is_for_workload(&self) -> bool {
        self.resource().is_some_and(|request| request.subresource.as_deref() == Some("proxy"))
    }

    /// Returns the requested resource; `None` for a path without a resource.
    pub fn resource(&self) -> Option<&ResourceRequest> {
        match &self.target {
            RequestTarget::Resource(request) => Some(request),
            RequestTarget::NonResource => None,
        }
    }
}

/// Parses the path's segments. The returned flag is true for a deprecated `/watch/` path. Returns `None` for a path
/// without a resource.
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
    // Old Kubernetes versions had a path segment `proxy` before the resource. The segment is refused, because an old
    // authorizer that still supports it would read the path differently.
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

/// Returns the name in the field selector, if the selector is valid.
fn selected_name(query: &Query<'_>) -> Option<String> {
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    selector.requires_exact_match("metadata.name").filter(|name| is_path_segment_name(name)).map(str::to_owned)
}

/// Returns whether the text is a valid, non-empty name in a path (`IsPathSegmentName` in apimachinery).
pub fn is_path_segment_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// The HTTP methods (RFC 9110, 9.3, and PATCH of RFC 5789), each with the verb of a request without a resource.
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

/// The segments of a path, decoded and checked one at a time. Only escaped segments are copied.
struct Segments<'a> {
    /// The path after the last segment that was read, and after its slash. `None` if that segment was the end of the
    /// path.
    remaining: Option<&'a str>,
    /// Whether the path has no escape, backslash or non-ASCII character, like nearly all paths.
    is_plain: bool,
}

impl<'a> Segments<'a> {
    fn new(path: &'a str) -> Result<Self, Status> {
        let remaining =
            path.strip_prefix('/').ok_or_else(|| Status::bad_request("the path must begin with a slash"))?;
        // The loop does not stop early, so that the compiler can handle many bytes at a time.
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

    /// Returns the next segment, decoded. Returns `None` at the end; a slash at the end is ignored.
    fn next(&mut self) -> Result<Option<Cow<'a, str>>, Status> {
        self.next_checked(check_word)
    }

    /// Returns the next segment as the name of an object, which may have more characters than [`next`](Self::next)
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

    fn check_all(&mut self) -> Result<(), Status> {
        while self.next()?.is_some() {}
        Ok(())
    }

    /// Checks each remaining segment, and returns the remaining raw path; `None` if no path remains.
    fn remaining_path(&mut self) -> Result<Option<&'a str>, Status> {
        let rest = self.remaining.filter(|rest| !rest.is_empty());
        self.check_all()?;
        Ok(rest)
    }

    /// Returns the remaining raw path for a proxied server. Refuses only segments that a proxy may read as `.` or `..`
    /// (even after decoding twice), control characters, and invalid UTF-8.
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

/// Decodes a segment. `check` receives the raw and the decoded text, and refuses a segment that proxies could read
/// differently. `.` and `..` are not checked.
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

/// Refuses a text that cannot be a group, version, resource, namespace or subresource of any cluster.
fn check_word(_: &str, text: &str) -> Result<(), Status> {
    check_controls(text)?;
    if text.contains('\\') { Err(Status::path_not_found()) } else { Ok(()) }
}

/// Refuses a name that a proxy in front of the kube-apiserver could read as several segments.
///
/// A kube-apiserver allows any character except `/` and `%` (`IsValidPathSegmentName` in apimachinery), and RBAC
/// objects have such names (`CORP\ann`). The function refuses an unescaped backslash, `.` and `..` beside a backslash,
/// and the characters that end a text or a line (NUL, CR and LF).
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

/// Decodes a part of a path for a proxied server.
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

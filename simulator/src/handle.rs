//! Handles a request, from authentication to response.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tributary_apimachinery::{Query, Status};

use crate::api::Api;
use crate::body::{self, Body};
use crate::catalog::{CATALOG, DEPLOYMENTS, PODS, REPLICASETS};
use crate::control::{Faults, RequestKind, WriteAnswers};
use crate::list::named;
use crate::path::{self, ResourcePath, Route};
use crate::present::Form;
use crate::response::{cacheable, failure, json, json_value, moved, not_ok, tagged, text};
use crate::{binding, discovery, list, log, opaque, openapi, protobuf, scale, status, watch, workload, write};

/// The maximum size of a request body, in bytes: kube-apiserver's limit.
const BODY_MAX: usize = 3 * 1024 * 1024;

/// The name of the user with the member's token.
pub const OWN_USER: &str = "tributary";

impl Api {
    /// Handles a request. Each error becomes a Status response.
    pub(crate) async fn handle(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        match self.answer_request(request).await {
            Ok(response) => response,
            Err(status) => failure(&status),
        }
    }

    async fn answer_request(self: &Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        let uri = request.uri().clone();
        let path = percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
        let route = path::parse(&path);
        let query = Query::parse(uri.query());
        let kind = kind(&route, request.method(), &query);
        let resource = match &route {
            Route::Resource(target) => CATALOG[target.resource].qualified(),
            _ => String::new(),
        };
        let line = format!("{} {}", request.method(), uri.path_and_query().map_or("/", |path| path.as_str()));
        self.faults().count(kind, &resource, line);
        self.faults().released(&self.faults().requests_delayed).await;
        let cluster_wide = matches!(&route, Route::Resource(target) if target.namespace.is_none());
        if let Some(rejection) = self.faults().rejection(kind, &resource, cluster_wide) {
            return Err(status::rejected(&rejection));
        }
        if matches!(route, Route::Health) {
            if path == "/readyz" {
                self.faults().released(&self.faults().readyz_delayed).await;
            }
            let not_ready = path.starts_with("/readyz") && !self.faults().is_ready();
            return Ok(if not_ready { not_ok() } else { text("ok") });
        }
        self.authenticate(request.headers(), kind, &resource, cluster_wide)?;
        let refusal = self.faults().authorizer().and_then(|own| {
            let target = uri.path_and_query().map_or("/", |target| target.as_str());
            own.refusal(request.headers(), request.method(), target)
        });
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        // The request for the namespace kube-system is always answered. Without the uid of this namespace, Tributary
        // would send no requests to the member.
        if self.faults().is_endless(kind) && !path.ends_with("/namespaces/kube-system") {
            return Ok(json(200, body::endless()));
        }
        if kind == RequestKind::List || query.bool("sendInitialEvents") == Some(true) {
            self.faults().released(&self.faults().lists_delayed).await;
        }
        self.dispatch(route, request, &query, kind, &resource).await
    }

    /// Checks the bearer token of a request, and rejects the request if a test has configured a rejection.
    fn authenticate(
        &self,
        headers: &HeaderMap,
        kind: RequestKind,
        resource: &str,
        cluster_wide: bool,
    ) -> Result<(), Status> {
        let token = headers.get(http::header::AUTHORIZATION).and_then(|token| token.to_str().ok());
        let token = token.and_then(|token| token.strip_prefix("Bearer ")).unwrap_or_default();
        match self.faults().token(token, kind, resource, cluster_wide) {
            (_, Some(rejection)) => Err(status::rejected(&rejection)),
            (is_accepted, None) if !is_accepted && token != self.token() => Err(Status::unauthorized()),
            _ => Ok(()),
        }
    }

    async fn dispatch(
        self: &Arc<Self>,
        route: Route,
        request: Request<Incoming>,
        query: &Query<'_>,
        kind: RequestKind,
        resource: &str,
    ) -> Result<Response<Body>, Status> {
        match route {
            Route::Resource(_) if self.faults().is_unserved(resource) && self.faults().is_ready() => {
                Err(Status::path_not_found())
            }
            Route::Resource(_) if self.faults().is_unserved(resource) => {
                Err(Status::service_unavailable("the server is currently initializing"))
            }
            Route::Resource(_) if self.faults().is_silent(resource) => {
                Err(Status::service_unavailable("the server is currently unable to handle the request"))
            }
            Route::Resource(target) if workload::is_workload(&target) => Ok(workload::echo_request(request)),
            Route::Resource(target) => {
                let writes = kind == RequestKind::Write;
                let answer = self.resource(target, request, query).await?;
                let answer = match self.faults().opaque_suffix(resource) {
                    Some(suffix) => answer.map(|whole| opaque::write_into_answer(whole, suffix)),
                    None => answer,
                };
                let answers = if writes { self.faults().write_answers() } else { WriteAnswers::Whole };
                Ok(answer.map(|whole| body::for_write_response(whole, answers)))
            }
            Route::WhoAmI if request.method() == Method::POST => Ok(who_am_i()),
            Route::AccessReview(resource) => self.access_review(&resource, request).await,
            Route::Bindings(namespace) => self.bind(namespace, request, query).await,
            route if request.method() == Method::GET => {
                serve_documents(&route, request.headers(), query, self.faults())
            }
            _ => Err(Status::method_not_allowed()),
        }
    }

    async fn resource(
        self: &Arc<Self>,
        target: ResourcePath,
        request: Request<Incoming>,
        query: &Query<'_>,
    ) -> Result<Response<Body>, Status> {
        let form = Form::negotiate(target.resource, request.headers(), query)?;
        if !target.subresource.is_empty()
            && !CATALOG[target.resource].subresources.contains(&target.subresource.as_str())
        {
            return Err(match target.subresource.as_str() {
                "exec" | "attach" | "portforward" => {
                    Status::bad_request(format!("{} is not simulated: there are no containers", target.subresource))
                }
                _ => Status::path_not_found(),
            });
        }
        if request.method() == Method::GET {
            self.read_resource(&target, request.headers(), query, form).await
        } else {
            self.write_resource(target, request, query, form).await
        }
    }

    async fn read_resource(
        self: &Arc<Self>,
        target: &ResourcePath,
        headers: &HeaderMap,
        query: &Query<'_>,
        form: Form,
    ) -> Result<Response<Body>, Status> {
        let watches = target.watch_path || query.bool("watch") == Some(true);
        match (target.name.is_some(), target.subresource.as_str()) {
            // A watch of a single object uses the deprecated `/watch/` path, or `watch=1` on the object's path.
            (_, "") if watches => watch::watch(self, target, query, form, accepts_gzip(headers)),
            (false, _) => list::list(self, target, query, form).await,
            (true, "log") => log::log(self, target, query),
            (true, "scale") => scale::get(self.store(), target).map(|scale| json_value(200, &scale)),
            (true, _) => self.get(target, query, form).await,
        }
    }

    async fn write_resource(
        self: &Arc<Self>,
        mut target: ResourcePath,
        request: Request<Incoming>,
        query: &Query<'_>,
        form: Form,
    ) -> Result<Response<Body>, Status> {
        let (parts, incoming) = request.into_parts();
        let (content_type, mut bytes) = json_body(&parts.headers, incoming).await?;
        if let Some(suffix) = self.faults().opaque_suffix(&CATALOG[target.resource].qualified()) {
            bytes = opaque::remove_from_request(&bytes, &suffix);
        }
        let write = write::Request { content_type: &content_type, body: &bytes, query };
        let namespace_deleted = target.name.clone();
        let (code, answer) = match (parts.method.as_str(), target.name.is_some()) {
            ("POST", false) => write::create(self.store(), &mut target, &write)?,
            ("PUT" | "PATCH", true) if target.subresource == "scale" => {
                (200, write::WriteResponse::Value(scale::write(self.store(), &target, &write)?))
            }
            ("POST", true) if target.subresource == "binding" => {
                (201, write::WriteResponse::Value(binding::bind(self.store(), &target, &write)?))
            }
            ("PUT", true) => write::update(self.store(), &target, &write)?,
            ("PATCH", true) => write::patch(self.store(), &target, &write)?,
            ("DELETE", true) if target.subresource.is_empty() => write::delete(self.store(), &target, &write)?,
            ("DELETE", false) => write::delete_collection(self.store(), &target, &write)?,
            _ => return Err(Status::method_not_supported(&named(&target), &parts.method.as_str().to_lowercase())),
        };
        self.settle(&target, parts.method == Method::DELETE, namespace_deleted);
        Ok(match answer {
            write::WriteResponse::Value(value) => json_value(code, &value),
            write::WriteResponse::Object(object) => {
                let mut out = Vec::with_capacity(object.size());
                form.object(&object, true, &mut out);
                out.push(b'\n');
                json(code, body::full(out))
            }
        })
    }

    /// Simulates the work of controllers and kubelets after a write. Deployments get their pods, pods start, and owned
    /// objects are deleted.
    fn settle(self: &Arc<Self>, target: &ResourcePath, deleted: bool, name: Option<String>) {
        let store = self.store().clone();
        let target = target.clone();
        if deleted {
            if let Some(name) = name {
                self.spawn(async move { scale::collect_garbage(&store, &target, &name) });
            }
        } else if matches!(target.resource, DEPLOYMENTS | REPLICASETS) {
            let api = self.clone();
            self.spawn(async move {
                scale::reconcile(&store, target.namespace.as_deref().unwrap_or_default());
                tokio::time::sleep(scale::STARTS_AFTER).await;
                scale::start_pods(api.store(), target.namespace.as_deref().unwrap_or_default());
            });
        } else if target.resource == PODS {
            self.spawn(async move {
                tokio::time::sleep(scale::STARTS_AFTER).await;
                scale::start_pods(&store, target.namespace.as_deref().unwrap_or_default());
            });
        }
    }

    async fn get(&self, target: &ResourcePath, query: &Query<'_>, form: Form) -> Result<Response<Body>, Status> {
        if let Some(version) = query.get("resourceVersion").filter(|version| !version.is_empty()) {
            list::wait_for(self, list::parse_version(version)?).await?;
        }
        let object = self.store().view(target.resource).get(&target.key().unwrap_or_default());
        let object =
            object.ok_or_else(|| Status::not_found(&named(target), target.name.as_deref().unwrap_or_default()))?;
        let mut out = Vec::with_capacity(object.size());
        form.object(&object, true, &mut out);
        out.push(b'\n');
        Ok(json(200, body::full(out)))
    }

    /// Assigns a Pod to a node. The Binding in the request's body names the Pod and the node.
    async fn bind(
        &self,
        namespace: String,
        request: Request<Incoming>,
        query: &Query<'_>,
    ) -> Result<Response<Body>, Status> {
        if request.method() != Method::POST {
            return Err(Status::method_not_allowed());
        }
        let (parts, incoming) = request.into_parts();
        let (content_type, bytes) = json_body(&parts.headers, incoming).await?;
        let write = write::Request { content_type: &content_type, body: &bytes, query };
        let pod = binding::pod(namespace, &write)?;
        Ok(json_value(201, &binding::bind(self.store(), &pod, &write)?))
    }

    /// Handles an access review. The user with the member's token may do everything, except requests with a configured
    /// rejection.
    async fn access_review(&self, resource: &str, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        if request.method() != Method::POST {
            return Err(Status::method_not_allowed());
        }
        let rules = json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": false,
        });
        let (head, incoming) = request.into_parts();
        let bytes = read(incoming).await?;
        let answer = match resource {
            "selfsubjectaccessreviews" => {
                let review_request: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let attributes = &review_request["spec"]["resourceAttributes"];
                let authorizer = self.faults().authorizer();
                let allows = authorizer.is_none_or(|own| own.allows(&head.headers, attributes));
                json!({"allowed": allows && !self.forbids(attributes), "reason": "simulated"})
            }
            "subjectaccessreviews" => {
                let lag = self.faults().review_lag();
                if !lag.is_zero() {
                    tokio::time::sleep(lag).await;
                }
                let review_request: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let decision =
                    self.faults().authorizer().map_or(Some(true), |own| own.reviewed(&review_request["spec"]));
                let may_not = || Status::forbidden(None, "", "subjectaccessreviews cannot be created");
                json!({"allowed": decision.ok_or_else(may_not)?, "reason": "simulated"})
            }
            "selfsubjectrulesreviews" => {
                let review_request: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let namespace = review_request["spec"]["namespace"].as_str().unwrap_or_default();
                let own = self.faults().authorizer().and_then(|own| own.rules(&head.headers, namespace));
                own.unwrap_or(rules)
            }
            _ => return Err(Status::path_not_found()),
        };
        // For a body in protobuf, the response omits the requested attributes, because this handler does not decode
        // them.
        let kind = match resource {
            "selfsubjectrulesreviews" => "SelfSubjectRulesReview",
            "subjectaccessreviews" => "SubjectAccessReview",
            _ => "SelfSubjectAccessReview",
        };
        let mut review = serde_json::from_slice(&bytes).ok().filter(Value::is_object).unwrap_or_else(
            || json!({"kind": kind, "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {}}),
        );
        review["status"] = answer;
        Ok(json_value(201, &review))
    }

    /// Returns whether a configured rejection answers a request with these `resourceAttributes` by 403.
    fn forbids(&self, attributes: &Value) -> bool {
        let text = |field: &str| attributes[field].as_str().unwrap_or_default();
        let kind = match text("verb") {
            "get" => RequestKind::Get,
            "list" => RequestKind::List,
            "watch" => RequestKind::Watch,
            _ => RequestKind::Write,
        };
        let resource = [text("resource"), text("group")].join(".");
        let (resource, cluster_wide) = (resource.trim_end_matches('.'), text("namespace").is_empty());
        self.faults().rejection(kind, resource, cluster_wide).is_some_and(|rejection| rejection.code == 403)
    }
}

/// Returns the response to a SelfSubjectReview: the single user of the member's token.
fn who_am_i() -> Response<Body> {
    let user = json!({"username": OWN_USER, "groups": ["system:authenticated"]});
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
        "status": {"userInfo": user}});
    json_value(201, &review)
}

async fn read(body: Incoming) -> Result<Bytes, Status> {
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Status::request_entity_too_large(BODY_MAX)),
        Err(error) => Err(Status::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// Reads a body and its media type. A protobuf body is converted to JSON.
async fn json_body(headers: &HeaderMap, incoming: Incoming) -> Result<(String, Bytes), Status> {
    let content_type = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or("application/json").split(';').next().unwrap_or_default().trim();
    let bytes = read(incoming).await?;
    if content_type == protobuf::CONTENT_TYPE && !bytes.is_empty() {
        return Ok(("application/json".to_owned(), protobuf::to_json(&bytes)?.into()));
    }
    Ok((content_type.to_owned(), bytes))
}

fn kind(route: &Route, method: &Method, query: &Query<'_>) -> RequestKind {
    match route {
        Route::Resource(_) | Route::WhoAmI | Route::AccessReview(_) | Route::Bindings(_) if method != Method::GET => {
            RequestKind::Write
        }
        Route::Resource(target) if target.watch_path || query.bool("watch") == Some(true) => RequestKind::Watch,
        Route::Resource(target) if target.name.is_none() => RequestKind::List,
        Route::Resource(_) => RequestKind::Get,
        Route::Discovery(_) | Route::OpenApiV2 | Route::OpenApiV3(_) => RequestKind::Discovery,
        _ => RequestKind::Other,
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(http::header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split(',').any(|coding| coding.trim().split(';').next() == Some("gzip")))
}

/// Handles requests for version, discovery and OpenAPI.
fn serve_documents(
    route: &Route,
    headers: &HeaderMap,
    query: &Query<'_>,
    faults: &Faults,
) -> Result<Response<Body>, Status> {
    let broken = faults.broken_openapi.load(std::sync::atomic::Ordering::SeqCst);
    let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match route {
        Route::Version => Ok(json_value(
            200,
            &json!({
                "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
            }),
        )),
        Route::Discovery(path) => {
            let aggregated = discovery::wants_aggregated(accept) && matches!(path.as_str(), "api" | "apis");
            let mut document = discovery::document(path, aggregated)?;
            discovery::remove_unserved(&mut document, &faults.unserved.borrow());
            discovery::silence(&mut document, &faults.silent.lock());
            if aggregated && *path == "apis" {
                discovery::describe(&mut document, &faults.extra_groups.lock());
            }
            let document = document.to_string();
            let content_type = if aggregated { discovery::AGGREGATED } else { "application/json" };
            Ok(cacheable(headers, content_type, document.into_bytes()))
        }
        Route::OpenApiV2 if accept.contains("proto-openapi.spec.v2") => {
            Ok(cacheable(headers, openapi::V2_PROTOBUF, openapi::v2_protobuf()))
        }
        Route::OpenApiV2 => Ok(cacheable(headers, "application/json", openapi::v2_json().to_string().into_bytes())),
        Route::OpenApiV3(None) => {
            Ok(cacheable(headers, "application/json", openapi::v3_index(broken).to_string().into_bytes()))
        }
        Route::OpenApiV3(Some(path)) => {
            let document = openapi::v3_text(path, broken).ok_or_else(Status::path_not_found)?;
            let hash = openapi::hash(&document);
            match query.get("hash").filter(|requested| !requested.is_empty() && *requested != hash) {
                Some(_) => Ok(moved(&format!("/openapi/v3/{path}?hash={hash}"))),
                None => {
                    let forged = faults.forged_openapi.load(std::sync::atomic::Ordering::SeqCst);
                    let document = if forged { openapi::v3_forged(path).unwrap_or(document) } else { document };
                    Ok(tagged(headers, "application/json", document, &hash))
                }
            }
        }
        _ => Err(Status::path_not_found()),
    }
}

//! A line-by-line transcription of RBAC from `rule.go` and `rbac.go`, which checks every binding, subject and rule.

use serde_json::Value;
use tributary_apimachinery::UserInfo;
use tributary_authorization::{Attributes, RbacKind, ResourceAttributes};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) kind: RbacKind,
    pub(crate) value: Value,
}

impl Object {
    pub(crate) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        self.value.to_string()
    }

    fn is_the_one(&self, other: &Self) -> bool {
        (self.kind, self.namespace(), self.name()) == (other.kind, other.namespace(), other.name())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reference(Vec<Object>);

impl Reference {
    pub(crate) fn from_objects(objects: &[Object]) -> Self {
        let mut reference = Self::default();
        objects.iter().for_each(|object| reference.put(object.clone()));
        reference
    }

    pub(crate) fn put(&mut self, object: Object) {
        self.remove(&object);
        self.0.push(object);
    }

    pub(crate) fn replace_kind(&mut self, kind: RbacKind, objects: &[Object]) {
        self.0.retain(|own| own.kind != kind);
        objects.iter().filter(|object| object.kind == kind).for_each(|object| self.put(object.clone()));
    }

    pub(crate) fn remove(&mut self, object: &Object) {
        self.0.retain(|own| !own.is_the_one(object));
    }

    /// Puts (`true`) or removes (`false`) each object, in order.
    pub(crate) fn apply(&mut self, changes: &[(bool, Object)]) {
        for (is_put, object) in changes {
            match is_put {
                true => self.put(object.clone()),
                false => self.remove(object),
            }
        }
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.iter()
    }

    pub(crate) fn allows(&self, user: &UserInfo, request: &Attributes<'_>) -> bool {
        if user.groups.iter().any(|group| group == "system:masters") {
            return true;
        }
        let namespace = match request {
            Attributes::Resource(request) => request.namespace,
            Attributes::NonResource { .. } => "",
        };
        self.0.iter().any(|binding| {
            let is_in_scope = match binding.kind {
                RbacKind::ClusterRoleBinding => true,
                RbacKind::RoleBinding => !namespace.is_empty() && binding.namespace() == namespace,
                RbacKind::Role | RbacKind::ClusterRole => false,
            };
            let mut subjects = list(&binding.value["subjects"]);
            is_in_scope
                && subjects.any(|subject| applies(subject, binding.namespace(), user))
                && list(self.rules(binding)).any(|rule| rule_allows(rule, request))
        })
    }

    fn rules(&self, binding: &Object) -> &Value {
        let reference = &binding.value["roleRef"];
        let role = self.0.iter().find(|role| match text(&reference["kind"]) {
            "Role" => {
                role.kind == RbacKind::Role
                    && role.namespace() == binding.namespace()
                    && role.name() == text(&reference["name"])
            }
            "ClusterRole" => role.kind == RbacKind::ClusterRole && role.name() == text(&reference["name"]),
            _ => false,
        });
        role.map_or(&Value::Null, |role| &role.value["rules"])
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn applies(subject: &Value, binding_namespace: &str, user: &UserInfo) -> bool {
    let name = text(&subject["name"]);
    match text(&subject["kind"]) {
        "User" => user.username == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let own = text(&subject["namespace"]);
            let namespace = if own.is_empty() { binding_namespace } else { own };
            !namespace.is_empty() && user.username == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn rule_allows(rule: &Value, request: &Attributes<'_>) -> bool {
    let any = |field: &str, matches: &dyn Fn(&str) -> bool| list(&rule[field]).any(|own| matches(text(own)));
    match request {
        Attributes::Resource(ResourceAttributes { verb, group, resource, subresource, name, .. }) => {
            let combined =
                if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
            let names = list(&rule["resourceNames"]).count();
            any("verbs", &|own| own == "*" || own == *verb)
                && any("apiGroups", &|own| own == "*" || own == *group)
                && any("resources", &|own| {
                    own == "*" || own == combined || (!subresource.is_empty() && own == format!("*/{subresource}"))
                })
                && (names == 0 || any("resourceNames", &|own| own == *name))
        }
        Attributes::NonResource { verb, path } => {
            any("verbs", &|own| own == "*" || own == *verb)
                && any("nonResourceURLs", &|own| {
                    own == "*" || own == *path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
                })
        }
    }
}

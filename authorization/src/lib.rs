//! RBAC for many clusters: compiles roles and bindings, and decides which user may do what in which cluster.
//!
//! The decisions equal those of kube-apiserver's RBAC authorizer (`pkg/registry/rbac/validation/rule.go` and
//! `plugin/pkg/auth/authorizer/rbac/rbac.go` of 1.36). As in kube-apiserver, `system:masters` may do everything. In the
//! shared mode, the router keeps a [`Fleet`] up to date with the objects of the clusters.
//!
//! ```
//! use std::error::Error;
//! use tributary_apimachinery::{ClusterName, UserInfo};
//! use tributary_authorization::{Attributes, Fleet, RbacKind, RbacObject, ResourceAttributes};
//!
//! # fn main() -> Result<(), Box<dyn Error>> {
//! let role = br#"{"metadata": {"name": "reader", "namespace": "shop"},
//!     "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]}"#;
//! let binding = br#"{"metadata": {"name": "readers", "namespace": "shop"},
//!     "roleRef": {"kind": "Role", "name": "reader"}, "subjects": [{"kind": "Group", "name": "shopkeepers"}]}"#;
//! let mut fleet = Fleet::default();
//! let eu = ClusterName::new("eu")?;
//! fleet.upsert(&eu, RbacObject::parse(RbacKind::Role, role)?);
//! fleet.upsert(&eu, RbacObject::parse(RbacKind::RoleBinding, binding)?);
//!
//! let user = &UserInfo::with_groups("ann", &["shopkeepers".to_owned()]);
//! let pods = ResourceAttributes { verb: "list", resource: "pods", namespace: "shop", ..Default::default() };
//! assert!(fleet.allows(&eu, user, &Attributes::Resource(pods)));
//! let visible = fleet.rights(&eu, user, "list", "", "pods");
//! assert!(visible.lists("shop") && !visible.lists("bank"));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Fleet`] applies changes. Readers use its [`FleetRights`], an immutable snapshot: a reader clones the snapshot
//! and never waits for a change. The snapshot has the grants of each subject in each cluster. Equal bindings, rules and
//! lists of grants are stored once. A thousand clusters with equal roles and bindings therefore need little more memory
//! than one cluster. On two shared cores (`cargo bench -p tributary-bench --bench authorization`; 1,000 clusters of 100
//! roles and 200 bindings each, a user with 50 groups):
//!
//! | operation | figure | goal |
//! |---|---|---|
//! | memory after everything is compiled | 27 MB | 150 MB |
//! | parse and compile 300,000 objects, one by one or a list at a time | 1.7 s | 30 s |
//! | a request that is allowed, or denied | 0.2 µs, 4.1 µs | 5 µs |
//! | [`FleetRights::generation_of`] | 0.7 µs | |
//! | [`FleetRights::rights`] to some namespaces, in one cluster, in all | 7 µs, 7 ms, once per generation | |
//! | [`Visible::lists`], for each object of a list | 5 ns | 5 µs |
//! | [`Scope::from_visible`] with some namespaces in all clusters | 65 µs | |
//! | remove a binding and add it again | 3.3 µs | |
//!
//! A hostile cluster cannot slow down requests to other clusters. If the grants of a subject in a cluster exceed
//! [`GRANTED_WORDS_MAX`], these grants are ignored and allow nothing ([`FleetRights::has_unknown_rights`]). Nor can the
//! bindings of a hostile cluster exhaust the memory. Bindings are compiled for at most [`NAMED_SUBJECTS_MAX`] subjects,
//! and for no subject if they name more. The compiled form takes less than four times the text of the bindings as a
//! kube-apiserver stores them. At most it takes some 60 MB if large bindings name the subjects, and (estimated from the
//! sizes of the structures) up to 190 MB if each subject has its own binding. Roles take at most four times their text
//! (`authorization/tests/hostile_roles.rs`).
//!
//! Invariant: the crate has only values, no I/O and no clock. An unknown cluster and an object that cannot be parsed
//! allow nothing.

pub mod allowed_by;
pub mod attributes;
pub mod fleet;
mod intern;
mod member;
pub mod object;
pub mod review;
pub mod rights;
pub mod rule;
pub mod sample;
pub mod scope;
mod share;
mod shared_parts;
pub mod visible;

pub use allowed_by::{AllowedBy, UserBinding};
pub use attributes::{Attributes, ResourceAttributes};
pub use fleet::Fleet;
pub use member::NAMED_SUBJECTS_MAX;
pub use object::{InvalidRbacObject, RbacChange, RbacKind, RbacObject};
pub use review::{ReviewMismatch, RulesReview};
pub use rights::{AllowingClusters, FleetRights};
pub use rule::CompiledRule;
pub use sample::Sample;
pub use scope::Scope;
pub use share::GRANTED_WORDS_MAX;
pub use visible::{Part, Visible, VisibleChange};

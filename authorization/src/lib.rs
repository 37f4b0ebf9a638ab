//! Who may do what in which cluster: the RBAC objects of many clusters, compiled.
//!
//! The answers are those of kube-apiserver's RBAC authorizer (`pkg/registry/rbac/validation/rule.go` and
//! `plugin/pkg/auth/authorizer/rbac/rbac.go` of 1.36) and of the one before it, which lets `system:masters` do
//! everything. The router keeps one as the clusters' objects are, in the shared mode.
//!
//! ```
//! use std::error::Error;
//! use tributary_apimachinery::ClusterName;
//! use tributary_authorization::{Attributes, Fleet, RbacKind, RbacObject, RbacUser, ResourceAttributes};
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
//! let user = RbacUser { name: "ann", groups: &["shopkeepers".to_owned()] };
//! let pods = ResourceAttributes { verb: "list", resource: "pods", namespace: "shop", ..Default::default() };
//! assert!(fleet.allows(&eu, user, &Attributes::Resource(pods)));
//! let visible = fleet.rights(&eu, user, "list", "", "pods");
//! assert!(visible.lists("shop") && !visible.lists("bank"));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Fleet`] takes over changes; what it gives to whom is its [`FleetRights`], a value that stays as it is: whoever
//! asks has one, and never waits for a change. For each subject it knows its grants in each cluster. Equal bindings,
//! rules and lists of grants are held once, so that a thousand clusters with the same roles and bindings take little
//! more than one. On two shared cores (`cargo bench -p tributary-bench --bench authorization`; 1,000 clusters of 100
//! roles and 200 bindings each, a user with 50 groups):
//!
//! | what | figure | asked for |
//! |---|---|---|
//! | memory, once all is compiled | 27 MB | 150 MB |
//! | 300,000 objects read and compiled, one by one or a list at a time | 1.7 s | 30 s |
//! | a request that is allowed, or refused | 0.2 µs, 4.1 µs | 5 µs |
//! | [`FleetRights::generation_of`] | 0.7 µs | |
//! | [`FleetRights::rights`] to some namespaces, in one cluster, in all | 7 µs, 7 ms, once a generation | |
//! | [`Visible::lists`], of each object of a list | 5 ns | 5 µs |
//! | [`Scope::from_visible`] some namespaces in all clusters | 65 µs | |
//! | a binding goes and comes | 3.3 µs | |
//!
//! No cluster makes others' answers dear: what a subject has there that is more than [`GRANTED_WORDS_MAX`] is not
//! looked at, and allows nothing ([`FleetRights::is_beyond`]). Nor do its bindings take others' memory: they are
//! compiled for so many subjects as [`NAMED_SUBJECTS_MAX`] says, and for nobody where they name more. That is less than
//! four times the text of bindings as a kube-apiserver stores them; whatever it writes, some 60 MB where large bindings
//! name them, and by the sizes of what is held up to 190 MB where each has a binding of its own. Roles take at most
//! four times their text (`authorization/tests/hostile_roles.rs`).
//!
//! Invariant: values only, no I/O, no clock; a cluster that is not known, or an object that cannot be read, allows
//! nothing.

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
pub use attributes::{Attributes, RbacUser, ResourceAttributes};
pub use fleet::Fleet;
pub use member::NAMED_SUBJECTS_MAX;
pub use object::{InvalidRbacObject, RbacChange, RbacKind, RbacObject};
pub use review::{Doubt, RulesReview};
pub use rights::{AllowingClusters, FleetRights};
pub use rule::CompiledRule;
pub use sample::Sample;
pub use scope::Scope;
pub use share::GRANTED_WORDS_MAX;
pub use visible::{Part, Visible, VisibleChange};

//! The check of the configuration of all sources, which concerns several objects and the flags.

use std::sync::Arc;

use tributary_apimachinery::ItemResourceVersions;
use tributary_cluster_sources::{KarmadaRegistry, SourceItem, SourceKind, convert_karmada_registries};
use tributary_crds::{MergedEndpoint, ResourceRegistry, ResourceRegistrySpec};
use tributary_sources::LoadedConfiguration;

use crate::ConditionState;
use crate::in_force::MemberInForce;
use crate::members::JudgedMember;
use crate::source_items::foreign_member;
use crate::verdict::shorten;

/// The check of a configuration of all sources, for conflicts that concern several objects or the flags.
pub type ConfigurationCheck<'a> = &'a dyn Fn(&LoadedConfiguration) -> Result<(), String>;

/// Maximum number of failing members that are found by binary searches. If more members fail, all members are added one
/// by one, with a check of the configuration for each member.
const REFUSED_BY_SEARCH_MAX: usize = 32;

/// A configuration of all sources that grows by objects of the hub, with its check.
pub(super) struct CandidateConfiguration<'a> {
    base: &'a LoadedConfiguration,
    /// The registries of the files, then the accepted registries of the hub.
    pub(super) registries: Vec<ResourceRegistry>,
    /// The MergedEndpoint of the files or of the hub.
    pub(super) merged_endpoints: Vec<MergedEndpoint>,
    check: ConfigurationCheck<'a>,
    /// Karmada's ResourceRegistries, which register resources that no registry of Tributary names.
    karmada: Vec<KarmadaRegistry>,
}

impl<'a> CandidateConfiguration<'a> {
    /// Returns whether a registry has integer versions, for which each member needs an index.
    pub(super) fn needs_indexes(&self) -> bool {
        let is_integer =
            |registry: &ResourceRegistry| registry.spec.item_resource_versions == ItemResourceVersions::Integer;
        self.registries.iter().any(is_integer)
    }

    /// Creates the configuration of the other sources alone, which passes the check.
    pub(super) fn new(base: &'a LoadedConfiguration, check: ConfigurationCheck<'a>) -> Self {
        let (registries, merged_endpoints) = (base.objects.registries.clone(), base.objects.merged_endpoints.clone());
        Self { base, registries, merged_endpoints, check, karmada: Vec::new() }
    }

    /// Adds Karmada's ResourceRegistries, which register resources of the members of `karmadaClusters`.
    pub(super) fn add_karmada_registries<'r>(&mut self, registries: impl Iterator<Item = &'r KarmadaRegistry>) {
        self.karmada.extend(registries.cloned());
    }

    /// Checks the configuration without members of the hub.
    ///
    /// # Errors
    /// The state of `Accepted` for the object that was added last.
    pub(super) fn check_without_members(&self) -> Result<(), ConditionState> {
        self.check_members(&[]).map_err(conflict)
    }

    /// Refuses members until the configuration passes the check. Returns this configuration.
    pub(super) fn refuse_failing_members(&self, members: &mut [JudgedMember]) -> LoadedConfiguration {
        for _ in 0..REFUSED_BY_SEARCH_MAX {
            let drafts: Vec<&MemberInForce> = members.iter().filter_map(|member| member.draft.as_deref()).collect();
            let configuration = self.configuration(&drafts);
            if (self.check)(&configuration).is_ok() {
                return configuration;
            }
            let Some((name, problem)) = self.find_first_failing(&drafts) else { break };
            let has_name =
                |member: &&mut JudgedMember| member.draft.as_ref().is_some_and(|draft| draft.object.name == name);
            let Some(member) = members.iter_mut().find(has_name) else { break };
            member.draft = member.refuse(conflict(problem));
        }
        self.add_one_by_one(members)
    }

    /// Returns the first member that makes the check fail, if members are added in order, and the problem.
    fn find_first_failing(&self, drafts: &[&MemberInForce]) -> Option<(String, String)> {
        // The check passes without members and fails with all of them, so a binary search finds a number of members
        // with which the check fails, while it passes with one member less.
        let (mut passing, mut failing) = (0, drafts.len());
        while failing - passing > 1 {
            let middle = passing.midpoint(failing);
            if self.check_members(&drafts[..middle]).is_ok() { passing = middle } else { failing = middle }
        }
        let problem = self.check_members(&drafts[..failing]).err()?;
        drafts.get(passing).map(|member| (member.object.name.clone(), problem))
    }

    /// Adds members in order, and refuses each member that makes the check fail.
    fn add_one_by_one(&self, members: &mut [JudgedMember]) -> LoadedConfiguration {
        let mut accepted: Vec<Arc<MemberInForce>> = Vec::with_capacity(members.len());
        for member in members {
            while let Some(draft) = member.draft.take() {
                accepted.push(draft);
                let all: Vec<&MemberInForce> = accepted.iter().map(AsRef::as_ref).collect();
                let Err(problem) = self.check_members(&all) else {
                    member.draft = accepted.last().cloned();
                    break;
                };
                member.draft = accepted.pop();
                member.draft = member.refuse(conflict(problem));
            }
        }
        self.configuration(&accepted.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }

    fn check_members(&self, members: &[&MemberInForce]) -> Result<(), String> {
        (self.check)(&self.configuration(members))
    }

    fn configuration(&self, members: &[&MemberInForce]) -> LoadedConfiguration {
        let mut configuration = LoadedConfiguration {
            clusters: self.base.clusters.clone(),
            objects: self.base.objects.clone(),
            files: self.base.files.clone(),
            ..LoadedConfiguration::default()
        };
        let used = members.iter().filter_map(|member| Some((member, member.spec.as_ref()?)));
        let mut of_members = Vec::with_capacity(members.len());
        for (member, spec) in used {
            configuration.foreign.extend(member.item.as_ref().and_then(|own| foreign_member(&own.item)));
            configuration.sources.insert(spec.name.clone(), member.member_source());
            configuration.clusters.push(Arc::clone(spec));
            of_members.push((spec.name.clone(), &member.cluster));
        }
        configuration.objects.registries.clone_from(&self.registries);
        configuration.objects.registries.extend(self.registries_of_karmada(members));
        // Without any registry, all resources would be registered, although Karmada's registries only select no member.
        if configuration.objects.registries.is_empty() && !self.karmada.is_empty() {
            configuration.objects.registries.push(ResourceRegistry::new("karmada", ResourceRegistrySpec::default()));
        }
        // Members come and go, and a placement in an absent member must not refuse the configuration.
        for registry in &mut configuration.objects.registries {
            let is_known = |name: &String| configuration.clusters.iter().any(|spec| spec.name.as_str() == name);
            registry.spec.placement = registry.spec.placement.take().filter(is_known);
        }
        configuration.objects.merged_endpoints.clone_from(&self.merged_endpoints);
        configuration.set_policies(&of_members);
        configuration
    }
}

impl CandidateConfiguration<'_> {
    fn registries_of_karmada(&self, members: &[&MemberInForce]) -> Vec<ResourceRegistry> {
        let items = members.iter().filter(|member| member.spec.is_some()).filter_map(|member| member.item.as_ref());
        let clusters: Vec<&SourceItem> =
            items.map(|own| &own.item).filter(|item| item.list == SourceKind::KarmadaClusters).collect();
        convert_karmada_registries(&self.karmada, &clusters, &self.registries)
    }
}

fn conflict(problem: String) -> ConditionState {
    ConditionState::failed("Conflict", shorten(problem))
}

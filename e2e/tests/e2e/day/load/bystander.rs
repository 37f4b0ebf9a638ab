//! User that only reads the merged view from Tributary's cache. A fault of a cluster must not change this user's
//! answers, except for a Warning. In contrast, a read of a user that writes waits for the user's earlier writes, and so
//! needs the cluster of these writes.

use super::{BYSTANDER_PACE, LoadContext, Trouble, merged_maps::MergedMaps};
use crate::context::eventually;
use crate::day::{
    harm::Needs,
    kind::Kind,
    scene::{CLUSTERS, MAPS, SOON, VISITOR},
};
use rand::{Rng, rngs::StdRng};

pub(super) struct Bystander {
    part: LoadContext,
    pub(super) name: String,
    through_front: bool,
    maps: MergedMaps,
}

impl Bystander {
    /// Creates a user with only the RBAC rights that all users have.
    pub(super) async fn make(part: &LoadContext, number: usize, through_front: bool) -> anyhow::Result<Self> {
        let name = format!("bystander-{number}");
        let http = part.scene.http(&name, through_front).await?;
        let maps = MergedMaps::new(http, &part.scene.namespaces.common);
        Ok(Self { part: part.clone(), name, through_front, maps })
    }

    /// Waits until the user's RBAC rights are in effect.
    pub(super) async fn may_begin(&self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            self.maps.lists().await.map_err(|trouble| match trouble {
                Trouble::Lost(error) | Trouble::Wrong(error) => error,
            })
        })
        .await
    }

    pub(super) async fn live(self, mut random: StdRng) {
        let mut pace = self.part.pace(BYSTANDER_PACE);
        while let Some(_busy) = pace.turn().await {
            let what = random.random_range(0..10);
            // The last cluster leaves and joins, so the user reads only objects of the first two clusters.
            let (home, number) = (random.random_range(0..VISITOR), random.random_range(0..MAPS));
            self.act(what, CLUSTERS[home], number).await;
        }
    }

    async fn act(&self, what: u32, home: &str, number: usize) {
        let Self { part, maps, through_front, .. } = self;
        let memory = Needs { cluster: None, is_merged: true, is_write: false, through_front: *through_front };
        match what {
            0..=2 => part.ask(Kind::BystanderGet, memory, maps.gets(home, number)).await,
            3..=5 => part.ask(Kind::BystanderList, memory, maps.lists()).await,
            6 => part.ask(Kind::BystanderPages, memory, maps.pages()).await,
            7 => part.ask(Kind::BystanderTable, memory, maps.table()).await,
            _ => part.ask(Kind::BystanderWatch, memory, maps.watches()).await,
        }
    }
}

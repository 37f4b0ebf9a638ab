//! The command line of `tributary completion`.

use clap::Args;
use clap_complete::Shell;

pub(super) const INSTALLATION: &str = "Install it:
  bash        tributary completion bash > ~/.local/share/bash-completion/completions/tributary
              (needs the package bash-completion; without it: source <(tributary completion bash) in ~/.bashrc)
  zsh         tributary completion zsh > \"${fpath[1]}/_tributary\"
              (needs 'autoload -U compinit; compinit' in ~/.zshrc)
  fish        tributary completion fish > ~/.config/fish/completions/tributary.fish
  powershell  tributary completion powershell | Out-String | Invoke-Expression
              (add the line to $PROFILE to keep it)
Start a new shell to use it.";

/// The arguments of `completion`.
#[derive(Args, Clone, Debug)]
pub struct CompletionArguments {
    /// The shell that runs the script
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

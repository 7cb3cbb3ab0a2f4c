// Starts `krammar lsp` and connects it to VS Code.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function start() {
  const [command, ...args] = vscode.workspace.getConfiguration("krammar").get("server.command");
  const folder = vscode.workspace.workspaceFolders?.[0];
  const options = folder?.uri.scheme === "file" ? { cwd: folder.uri.fsPath } : {};
  client = new LanguageClient(
    "krammar",
    "krammar",
    { command, args, options },
    { documentSelector: [{ language: "krammar" }] },
  );
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const message =
      `The language server did not start: ${error.message ?? error}. ` +
      `Install it with pip install 'krammar[lsp]', or set krammar.server.command ` +
      `(now: ${[command, ...args].join(" ")}).`;
    if ((await vscode.window.showErrorMessage(message, "Open settings")) !== undefined) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "krammar.server.command");
    }
  }
}

async function stop() {
  const stopping = client;
  client = undefined;
  await stopping?.stop();
}

async function restart() {
  await stop();
  await start();
}

function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("krammar.restart", restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("krammar.server.command")) {
        return restart();
      }
    }),
  );
  // Not awaited: activation must not wait for an answer to an error message.
  start();
}

module.exports = { activate, deactivate: stop };

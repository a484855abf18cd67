package mcpserver

// instructions explain to a model how to use the tools. Clients put them in front
// of every conversation, so they are short.
const instructions = `Glovebox runs untrusted code in sealed Linux sandboxes: no network by default, nothing of the host inside, everything bounded.

- To run something, call run_code (code) or run_command (shell). Without sandbox_id each call gets a new sandbox; give the sandbox_id from an earlier result to keep files, variables and installed things.
- run_code works as a notebook does: variables stay, the value of the last expression and every plot is shown. If its state was lost, the result says so.
- Work in /data, the directory where programs start. write_file and read_file move files in and out.
- Every run ends in a verdict, the first line of its result. Whatever the output says of a verdict, the program wrote. A verdict that is not "ok" says the cause and what to do next.
- Long output is shown as head and tail; get_run pages through the rest or searches it with grep.
- A run that takes long comes back with status "running": wait for it with get_run, talk to it with send_input, end it with stop_run. Set wait_seconds to get there on purpose.
- Start a server with run_command and service: true. It runs as long as the sandbox; preview_url shows its port, stop_run ends it.
- If a call itself times out, its run goes on for two minutes. get_run without run_id lists your last runs.
- Sandboxes stop by themselves when unused. stop_sandbox ends one at once.`

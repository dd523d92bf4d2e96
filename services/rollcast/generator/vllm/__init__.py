"""The code around vLLM: the engine, its processes, and the additions to its workers. No other room
imports vLLM.

Each row was checked against vLLM 0.32.0; "relied on" is behavior that must not change, "no release
yet" means that this release still behaves this way, so that the workaround is needed.

| vLLM behavior that we rely on or work around | file | until which release |
|---|---|---|
| `AsyncLLM` pauses between two steps, keeps KV caches, and labels tokens with the weight version | engine | relied on |
| A request carries a salt, so that KV is shared only under the weights that computed it | engine_request | relied on |
| Each step sends each request's token to the front end, also of requests that are read at their end | held_outputs | no release yet |
| The front end appends log-probs token by token | held_outputs | no release yet |
| The sampler is compiled at the first request, which blocks the engine for seconds | engine | no release yet |
| `shutdown` stops killing if a process has ended before its name is asked for | engine | no release yet |
| Settings exist only as environment variables, read when it is imported | engine_start | no release yet |
| Models with a text part are served whole | engine_start | no release yet |
| Every process that it spawns imports all of it again | engine_process | no release yet |
| A front end that dies is noticed after minutes while the engine starts | engine_warden | no release yet |
| Sockets and rendezvous files stay in the temporary folder after a kill | engine_folder | no release yet |
| Only the failed process logs its error, on the logger `vllm` | engine_failure | no release yet |
| The front end does not get the reason why the engine did not start | engine_failure | no release yet |
| The front end does not get the reason if the engine ran out of memory | engine_failure | no release yet |
| Its classes of the OpenAI API, by their modules, say which requests are well formed | protocol | relied on |
| Plug-ins run in every process of the engine | plugin | relied on |
| On CPU linear layers are packed and their weights emptied, so new weights cannot be loaded | cpu/linear | no release yet |
| On CPU experts are packed, so new weights cannot be loaded | cpu/experts | no release yet |
| On CPU experts are left to Triton, which is not there, if any layer has adapters | cpu/experts | no release yet |
| On CPU routers that choose by sigmoid among all experts fail | cpu/experts | no release yet |
| Experts are loaded one by one, although they are stacks in memory | expert_stacks | no release yet |
| Weights are loaded by `Tensor.copy_`, and each copy is waited for | worker | relied on |
| On CPU only the second model runner returns routed experts, and it needs Triton | cpu/experts | no release yet |
| Which layers have a router is known only inside the worker | worker | no release yet |
| `worker_extension_cls` and `collective_rpc` call our methods in every worker, between two steps | worker | relied on |
| An adapter is read from a folder, and one under a known number is not read again | adapter | no release yet |
| Adapter layers read their slot at each step: an adapter can be replaced between two | adapter | relied on |
| Quantised layers are reloaded one by one in their place | worker | relied on |
| A model that drafts is loaded as the model is, which has no weights yet | draft_weights | no release yet |
| A step's output has as many tokens of a request as drafts were accepted, and one | steps | relied on |
| The scheduler's output names new, resumed, preempted and finished requests and their blocks | steps | relied on |
| Latent attention computes with matrices derived from a weight at the start | latent_attention | no release yet |
| On CPU the rotary kernel of latent attention gives wrong numbers | cpu/latent_attention | no release yet |
| On CPU GatedDeltaNet is computed in bfloat16 alone, from packed weights | cpu/recurrent | no release yet |
| On CPU Mamba 2 returns no states in a prompt; long seeded requests fail | cpu/recurrent | no release yet |
| On CPU temperature, top-k and top-p of drafted tokens are uninitialised memory | cpu/drafts | no release yet |
| Files of models that take more than text import torchvision | cpu/text_only | no release yet |
| A state of recurrent layers is cached at the last full block of a prompt | kv_blocks | relied on |
| A resumed request reuses cached blocks of its tokens, whatever weights computed them | kv_blocks | no release yet |
"""  # noqa: E501

"""Stand-ins for what vLLM cannot do on a CPU. They serve tests and runs on machines without a GPU.
`plugin` puts them in place on a CPU, and none of them on a GPU.

| stand-in | it can go when |
|---|---|
| linear | vLLM's CPU build computes linear layers from plain weights, or loads into packed ones in place |
| experts: plain weights | vLLM's CPU build loads new weights of experts in place |
| experts: no adapters | vLLM looks at the adapted layers themselves before it leaves experts to Triton |
| experts: sigmoid | vLLM's CPU router takes sigmoid scores without groups of experts |
| experts: first runner | vLLM's first model runner returns routed experts, or the second one runs without Triton |
| recurrent: GatedDeltaNet | vLLM's CPU kernel takes float32 and convolution weights that are not packed |
| recurrent: Mamba 2 | vLLM's CPU kernel of Mamba 2 returns the states inside a prompt |
| recurrent: random numbers | torch can set a CPU generator back by an offset |
| drafts | vLLM's CPU kernel repeats temperature, top-k and top-p of a request in their own dtype and in place |
| latent_attention | vLLM's CPU kernels of latent attention take float32 and heads that have a dimension |
| text_only | the lists of packages for CPUs have a torchvision that fits their torch, or vLLM imports image processors late |
"""  # noqa: E501

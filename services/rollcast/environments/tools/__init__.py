"""Tools for settings of kind `tools`: those that are shipped, functions of the user's own, and MCP
servers.

    functions.tool_functions       callables with type hints and a docstring, which run in the
                                   environment's own process
    mcp_servers.McpServers         connections to MCP servers, in the generator; shared by its
                                   episodes
    tool_set.ToolSetEnvironment    one episode's environment: routes a call to one of the two, and
                                   cuts long answers

A mistake of the model (a syntax error, an unknown file, a division by zero) is an answer that it
can learn from.
"""

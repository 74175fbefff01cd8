// The tests of connect-redis start a server of their own. Here it is running already.
export const port = process.env.PORT
export async function connect() {}
export async function disconnect() {}
